# Every verb of this checkout. Each sets up what it needs first; a second call finds it done.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
# SAM builds the layer with the python3.13 it finds on the PATH: the one of .venv.
SAM := PATH="$(CURDIR)/$(BIN):$$PATH" SAM_CLI_TELEMETRY=0 .tools/sam/bin/sam
UV := $(BIN)/uv --quiet

.PHONY: reasons help setup demo test lint check bench sam-test build deploy pins manifests

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: .venv/.ready ## create .venv with everything, .venv/bin/leeway included

demo: setup ## rehearse a storm of Spot interruptions on the sandbox
	$(BIN)/leeway demo

# Two files at a time, or WORKERS=0: one after the other. Storms of fifty have the machine to themselves.
WORKERS ?= 2
ALONE := tests/end_to_end/test_storms_with_faults.py

test: setup ## run the tests (but for SAM's, which sam-test runs)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --ignore=tests/end_to_end
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ALONE:%=--ignore=%) tests/end_to_end
	$(BIN)/python -m pytest $(ALONE)

check: lint test ## the whole gate: style, types, architecture, template, tests

lint: setup .tools/sam/.ready .tools/checkov/.ready ## all of check but the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(SAM) validate --lint
	.tools/checkov/bin/checkov --file template.yaml --framework cloudformation --compact --quiet --skip-download

# `make bench packing storms` measures these parts only.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
PARTS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(PARTS)
$(PARTS): ; @:
endif

bench: build ## measure: time to cordon, import time, packing …, or only what is named after it
	$(BIN)/python -m bench $(PARTS)

sam-test: build ## run what was built: imported as Lambda would, and by sam local invoke
	PATH="$(CURDIR)/.tools/sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 $(BIN)/python -m pytest tests/sam -m sam

build: setup .tools/sam/.ready ## build the artefacts that deploy uploads
	$(SAM) build

deploy: build ## deploy, asking for what it does not know
	$(SAM) deploy --guided

manifests: setup ## write the schemas and the pages of the manifests again, from their models
	$(BIN)/leeway schema --directory docs/schemas
	$(BIN)/leeway schema --directory docs/manifests -o markdown

reasons: setup ## write the page of the reason codes again, from the code
	$(BIN)/leeway reasons -o markdown > docs/reasons.md

pins: .venv/.ready ## resolve requirements/*.txt and the layer's again (UPGRADE=1 for newer ones)
	tools/pin $(if $(UPGRADE),--upgrade)

.venv/.ready: requirements/uv.txt requirements/dev.txt pyproject.toml
	@echo "Setting up .venv (about a minute the first time)"
	@python="$$(tools/find-python)" && { $(BIN)/python -m pip --version >/dev/null 2>&1 || "$$python" -m venv --clear .venv; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@$(UV) pip install --python $(BIN)/python --require-hashes --requirement requirements/dev.txt
	@$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.tools/%/.ready: requirements/%.txt | .venv/.ready
	@echo "Setting up $* in .tools/$* (once)"
	@$(UV) venv --clear --python $(BIN)/python .tools/$*
	@$(UV) pip install --python .tools/$*/bin/python --require-hashes --requirement requirements/$*.txt
	@touch $@
