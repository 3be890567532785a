# The chores of this project. `make` lists them.

VENV ?= $(or $(VIRTUAL_ENV),.venv)
export PATH := $(abspath $(VENV))/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install test slow fuzz mutants lint format types layers check golden schema sample-traces report-pictures benchmark wheel ci

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

SAMPLE ?= 400

mutants: ## plant faults in rules, analysis and replay, and list those that their own tests miss (SAMPLE=..., MUTANT_SEED=...)
	nice -n 19 python -m tests.mutants --sample $(SAMPLE) --seed $(or $(MUTANT_SEED),1) --into docs/mutants.md

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
	pytest -q tests/results/test_report_json.py -k committed_schema --golden

sample-traces: ## capture sample_traces/ anew, on an otherwise idle machine
	python sample_traces/record.py
	pytest -q tests/test_sample_traces.py --golden

CHROMIUM = chromium --headless --no-sandbox --disable-gpu --hide-scrollbars

report-pictures: ## draw docs/images/ (needs Chromium, pdftoppm and the public recordings in ../shared/traces)
	set -e; folder=$$(mktemp -d); page=file://$$folder; to=--screenshot=docs/images; mkdir -p docs/images; \
	traceadvisor report sample_traces/loader-bound -o $$folder/capture; \
	traceadvisor report ../shared/traces/tensorboard-logs -o $$folder/resnet50 --format html,pdf; \
	$(CHROMIUM) --window-size=1280,1400 $$to/report-desktop.png $$page/capture/report.html; \
	$(CHROMIUM) --window-size=1280,1500 $$to/resnet50-desktop.png $$page/resnet50/report.html; \
	$(CHROMIUM) --window-size=390,1500 $$to/resnet50-phone.png $$page/resnet50/report.html; \
	$(CHROMIUM) --window-size=1280,1500 --blink-settings=preferredColorScheme=0 \
	  $$to/resnet50-dark.png $$page/resnet50/report.html; \
	pdftoppm -png -r 55 -f 2 -singlefile $$folder/resnet50/report.pdf docs/images/resnet50-pdf; \
	rm -r $$folder

benchmark: ## measure how traces are read, on an otherwise idle machine, and write it into docs/performance.md
	python -m benchmarks.reading --into docs/performance.md

wheel: ## build dist/traceadvisor-*.whl
	pip wheel --no-deps --wheel-dir dist .

ci: ## do what the continuous integration does, on a Debian as root or on any machine that has what it takes
	.ci/run
