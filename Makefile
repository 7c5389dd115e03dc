# The commands of this repository. Each one sets up its tools at the first call.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Without bytecode each process of a sandbox compiles its libraries again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# SAM builds the layer with the python3.13 of the PATH: that of .venv.
SAM := PATH="$(CURDIR)/$(BIN):$$PATH" SAM_CLI_TELEMETRY=0 .tools/sam/bin/sam
UV := $(BIN)/uv --quiet

.PHONY: acceptance release conformance reasons help hunt setup demo test lint check bench sam-test build deploy pins dashboards manifests

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: .venv/.ready ## create .venv with all dependencies and .venv/bin/leeway

demo: setup ## send a storm of Spot interruptions to a sandbox and report the result
	$(BIN)/leeway demo

# Six test files run concurrently, because many of them wait, the longest ones first; WORKERS=0: one.
# End-to-end tests, which wait most, have a session of their own, and storms of fifty another one:
# beside others they wait for processors.
WORKERS ?= 6
END_TO_END_WORKERS ?= 8
BY_FILE := --dist loadfile --no-loadscope-reorder
ALONE := tests/end_to_end/test_storms_with_faults.py

test: setup ## run the tests (sam-test runs those of SAM)
# One process rewrites the assertions of the modules; otherwise each worker would do it at its start.
	@env -u LEEWAY_TALLY $(BIN)/python -m pytest --collect-only -q >/dev/null || true
# Each run has temporary files of its own: two that remove old ones at the same time fail.
	@own=$$(mktemp -d) failed=0; trap 'rm -rf $$own' EXIT; export PYTEST_DEBUG_TEMPROOT=$$own; \
	$(BIN)/python -m pytest -n $(WORKERS) $(BY_FILE) --ignore=tests/end_to_end || failed=1; \
	$(BIN)/python -m pytest -n $(END_TO_END_WORKERS) $(BY_FILE) $(ALONE:%=--ignore=%) tests/end_to_end || failed=1; \
	$(BIN)/python -m pytest $(ALONE) || failed=1; \
	exit $$failed

hunt: setup ## draw new examples for the property tests (test draws the same ones each time)
	$(BIN)/python -m pytest -n $(WORKERS) $(BY_FILE) -m hypothesis --hypothesis-profile=hunt tests

check: lint test ## run all checks: style, types, architecture, template, tests
# What lint finds is told first, with -j too.
ifneq (,$(filter check,$(MAKECMDGOALS)))
test: | lint
endif

lint: setup .tools/sam/.ready .tools/checkov/.ready ## run all checks without the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(SAM) validate --lint
	$(BIN)/cfn-lint examples/*.yaml
# checkov exits with 0 if it cannot parse the template: then it has passed no check.
	@found=$$(.tools/checkov/bin/checkov --config-file .checkov.yaml) || failed=1; echo "$$found"; \
	case "$$found" in *"Parsing errors"* | *"Passed checks: 0"*) failed=1;; esac; exit $${failed:-0}

# `make bench packing storms` runs only these measurements.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
PARTS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(PARTS)
$(PARTS): ; @:
endif

bench: build ## measure the time to cordon, import times, packing …, or only the named parts
	$(BIN)/python -m bench $(PARTS)

sam-test: build ## test the build: imported as in Lambda, and with sam local invoke
	PATH="$(CURDIR)/.tools/sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 $(BIN)/python -m pytest tests/sam -m sam

build: setup .tools/sam/.ready ## build the artefacts of a deployment
	$(SAM) build

release: build ## make dist/: the wheel, the template with its archives, objects of clusters, checksums
	rm -rf dist
	$(BIN)/python -m tools.bundle

deploy: build ## deploy, with questions for missing parameters
	$(SAM) deploy --guided

# Only a KUBECONFIG of the command line counts: the environment's may name a cluster in use.
conformance: setup ## KUBECONFIG=FILE: run the tests that fit on that test cluster (CONTEXT=NAME)
ifneq ($(origin KUBECONFIG),command line)
	@echo 'No cluster: name a test cluster with `make conformance KUBECONFIG=FILE`.' >&2; exit 2
endif
	LEEWAY_CONFORMANCE_KUBECONFIG='$(abspath $(KUBECONFIG))' \
	LEEWAY_CONFORMANCE_CONTEXT='$(CONTEXT)' \
	LEEWAY_CONFORMANCE_YES_THIS_CLUSTER='$(YES_THIS_CLUSTER)' \
		$(BIN)/python -m pytest -v tests/conformance

acceptance: setup ## CLUSTER=NAME: prove on that cluster that nodes come and go, for about a dollar (YES=1, FIS_ROLE=ARN, ONLY=…)
ifndef CLUSTER
	@echo 'No cluster: name one with `make acceptance CLUSTER=NAME`.' >&2; exit 2
endif
	$(BIN)/leeway acceptance '$(CLUSTER)' $(if $(YES),--yes) $(if $(FIS_ROLE),--fis-role '$(FIS_ROLE)') \
		$(ONLY:%=--only '%') --html acceptance.html --output json >acceptance.json

reasons: setup ## generate docs/reasons.md from the code
	$(BIN)/leeway reasons -o markdown > docs/reasons.md

dashboards: setup ## write the dashboard of CloudWatch into template.yaml, and that for Grafana
	$(BIN)/python -m tools.dashboard

manifests: setup ## generate the schemas, pages and CRDs of manifests from their models
	$(BIN)/leeway schema --directory docs/schemas
	$(BIN)/leeway schema --directory docs/manifests -o markdown
	$(BIN)/leeway schema --crd --directory crds

pins: .venv/.ready ## resolve the requirements of the repository and the layer (UPGRADE=1: newer versions)
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
