# The chores of this project. `make` lists them.

VENV ?= $(or $(VIRTUAL_ENV),.venv)
export PATH := $(abspath $(VENV))/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install test slow fuzz lint format types layers check golden schema sample-traces report-picture benchmark wheel ci

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make a virtual environment (.venv) with the tool and all that its tests need
	python3 -m venv $(VENV)
	pip install -c constraints.txt -e '.[dev]'

test: ## run the tests
	pytest

slow: ## run the tests that take minutes: browser, launchers, the demo
	pytest -m slow

MINUTES ?= 5

fuzz: ## damage recordings at random for 5 minutes (MINUTES=...) and look what comes of them
	nice -n 19 python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

lint: ## look for mistakes and for style
	ruff check
	ruff format --check

format: ## mend what can be mended of style
	ruff check --fix
	ruff format

types: ## check types
	mypy

layers: ## check that imports go down only
	lint-imports --no-logo

check: lint types layers test ## everything that must hold before a commit

golden: ## write golden files anew (schema and README included): read the difference before committing it
	pytest --golden

schema: ## write docs/report.schema.json from the types of the JSON report
	pytest -q tests/rendering/test_report_json.py -k committed_schema --golden

sample-traces: ## capture sample_traces/ anew, on an otherwise idle machine
	python sample_traces/record.py
	pytest -q tests/test_sample_traces.py --golden

report-picture: ## draw docs/images/report-desktop.png, the picture in the README (needs Chromium)
	set -e; folder=$$(mktemp -d); traceadvisor report sample_traces/loader-bound -o $$folder; mkdir -p docs/images; \
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1400 \
	  --screenshot=docs/images/report-desktop.png file://$$folder/report.html; \
	rm -r $$folder

benchmark: ## measure how traces are read, on an otherwise idle machine, and write it into docs/performance.md
	python -m benchmarks.reading --into docs/performance.md

wheel: ## build dist/traceadvisor-*.whl
	pip wheel --no-deps --wheel-dir dist .

ci: ## do what the continuous integration does, on a Debian as root or on any machine that has what it takes
	.ci/run
