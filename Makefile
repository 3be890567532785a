# The chores of this project. `make` lists them.

VENV ?= $(or $(VIRTUAL_ENV),.venv)
export PATH := $(abspath $(VENV))/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install frameworks test test-bare test-python versions slow nightly fuzz kills growth verdicts mutants advice planted-captures lint format types layers check golden schema sample-traces report-pictures benchmark experiments-truths loaders gpu-wheels gpu-kit gpu-results dist rehearse site ci

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## make a virtual environment (.venv) with the tool and all that its tests need
	python3 -m venv $(VENV)
	pip install -c constraints.txt -e '.[dev]'

frameworks: ## install real frameworks and launchers too (half a gigabyte), which nightly tests capture
	pip install -c constraints.txt -e '.[dev,frameworks]'
	pip install --no-deps -c constraints.txt fastai fasttransform fastdownload plum-dispatch beartype  # torchvision breaks a torch for CPUs

test: ## run the tests
	pytest

test-bare: ## run the README's test command in a bare Debian 12 that holds python3-venv only (as root)
	.ci/bare "python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e '.[dev]' && pytest"

PYTHON ?= python3.12
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)

test-python: ## run the tests on another Python or torch, in an environment of its own (PYTHON=python3.12 TORCH=2.11.0)
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv $$folder; $$folder/bin/pip install 'torch==$(TORCH)' -e '.[dev]'; $$folder/bin/pytest

ROWS ?=

versions: ## read, capture and compare on each Python and torch, and write it into benchmarks/versions.md (ROWS='python3.12=2.15.0 ...')
	python -m benchmarks.versions build/versions $(ROWS) --into benchmarks/versions.md

slow: ## run the slow tests of every change: browser, launchers, the demo
	pytest -m "slow and not nightly"

MINUTES ?= 5

nightly: ## run what takes too long for every change: nightly tests, more examples, an hour of damaged recordings, 24 kills, growth, each torch on each Python, 40 mutants (MUTANT_SEED=...)
	$(MAKE) site
	pytest -m nightly --deselect tests/recording/test_kill.py
	pytest -m 'hypothesis and not nightly' --hypothesis-profile=nightly
	nice -n 19 python -m tests.fuzz --minutes 60 --processes $$(nproc) --count
	nice -n 19 python -m tests.fuzz.parsers --minutes 30 --count
	$(MAKE) kills MOMENTS=24
	python -m benchmarks.growth
	python -m benchmarks.versions build/versions
	python -m tests.mutants --no-thresholds --sample 40 --seed $(or $(MUTANT_SEED),$$(date +%j))

kills: ## kill captures at random moments, and read what they leave (MOMENTS=...)
	MOMENTS=$(or $(MOMENTS),100) pytest -m '' tests/recording/test_kill.py

fuzz: ## try new random examples: property tests once, then damaged recordings for 5 minutes (MINUTES=... SEED=...)
	nice -n 19 pytest -m hypothesis --hypothesis-profile=explore $(if $(SEED),--hypothesis-seed=$(SEED))
	nice -n 19 python -m tests.fuzz --minutes $(MINUTES) --processes $$(nproc) $(if $(SEED),--seed $(SEED))

PAIRS ?= 2000

verdicts: ## simulate pairs of captures with known differences: false alarms and power of `compare` (PAIRS=...)
	nice -n 19 python -m tests.comparing.simulation $(PAIRS)

SAMPLE ?= 400

mutants: ## plant faults in rules, analysis and replay, and list those that their own tests miss (SAMPLE=..., MUTANT_SEED=...)
	nice -n 19 python -m tests.mutants --sample $(SAMPLE) --seed $(or $(MUTANT_SEED),1) --into benchmarks/mutants.md

advice: ## score the first findings of reports against expert labels (WRITE=1: also write benchmarks/validation/details.md)
	python -m tests.recordings.advice $(if $(WRITE),--write)

FRAMEWORKS ?=

planted-captures: ## capture trainings with planted faults anew (FRAMEWORKS=: a Python with lightning, transformers, accelerate)
	python -m benchmarks.planted.record $(if $(FRAMEWORKS),--python $(FRAMEWORKS))

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

report-pictures: ## draw those of docs/images/ that show an older page (needs Chromium, pdftoppm, and ../shared/traces)
	pytest -q tests/rendering/test_pictures.py --golden

benchmark: ## measure how traces are read, on an otherwise idle machine, and write it into benchmarks/measured.md
	python -m benchmarks.reading --into benchmarks/measured.md

growth: ## measure how costs grow with their input on worst cases, and write it into benchmarks/measured.md (SHORT=1: sizes of the tests, no writing)
	python -m benchmarks.growth $(if $(SHORT),--short,--into benchmarks/measured.md)

loaders: ## capture loaders, measure what reports propose for them, and write it into benchmarks/validation/details.md, on an idle machine
	python -m benchmarks.validation.loaders

experiments-truths: ## check sweep on scripts with known truths, an hour on an idle machine (ONLY=: a part of their names)
	python -m benchmarks.experiments $(if $(ONLY),--only '$(ONLY)')

GPU_OUT ?= out/gpu

gpu-wheels: ## download what gpu-kit carries to a machine without a network (Python 3.12), into benchmarks/gpu/wheels
	rm -rf benchmarks/gpu/wheels
	pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	  --dest benchmarks/gpu/wheels -r benchmarks/gpu/carried.txt

gpu-kit: ## measure on a machine with a GPU, 25 minutes in all (REDUCED=1: a small form on the CPU), into GPU_OUT=out/gpu
	python -m benchmarks.gpu all --out $(GPU_OUT) $(if $(REDUCED),--reduced)

FOLDER ?= $(if $(filter gpu-results,$(firstword $(MAKECMDGOALS))),$(word 2,$(MAKECMDGOALS)))

gpu-results: ## turn what gpu-kit wrote (FOLDER=..., or the folder after the goal) into samples, golden reports and pages
	python -m benchmarks.gpu.results $(or $(FOLDER),$(error Name the folder: make gpu-results FOLDER=...))

dist: ## build the wheel and the source distribution into dist/, twice, and check them
	.ci/dist

rehearse: dist ## publish dist/ on an index of this machine, and install it from there with pip, uvx and pipx
	.ci/rehearse

site: ## build the documentation site strictly, into build/site (needs the extra "docs")
	python -m docs.site

ci: ## do what the continuous integration does, on a Debian as root or on any machine that has what it takes
	.ci/run
