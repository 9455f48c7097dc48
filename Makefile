# Everything happens in .venv, which is made and filled on demand: `make tour` on a fresh clone is enough.
# `make` alone lists the targets. Use another interpreter with `make PYTHON=python3.12 ...`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in so many processes, a file of tests in one of them; WORKERS=0 runs them in this one, for a debugger.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
# The stamps say what was installed; they are older than these files once the requirements have changed.
REQUIREMENTS := pyproject.toml constraints.txt
# Tests read this folder when it is there, and skip what needs it when it is not.
ifneq ($(wildcard ../shared/data),)
export UNEMBED_TEST_DATA ?= $(abspath ../shared/data)
endif

.DEFAULT_GOAL := help
.PHONY: help tour test test-slow test-long check docs bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

tour: $(VENV)/.runtime ## train a small model on a verb grammar and open it up (about 2 minutes with the installation)
	$(BIN)/unembed tour

test: $(VENV)/.development ## the tests that everybody runs before a commit (at most 10 minutes)
	$(PYTEST) -m "not slow and not long"

test-slow: $(VENV)/.development ## the tests that take more than a few seconds each
	$(PYTEST) -m "slow and not long"

test-long: $(VENV)/.development ## the tests that take over 20 minutes each
	$(BIN)/python -m pytest -m long -s

check: $(VENV)/.development ## style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.development ## write the pages of docs/ that are derived from the code
	$(BIN)/python docs/generate.py

bench: $(VENV)/.development ## speed and memory against other programs, side by side, written to docs/benchmarks.md (about an hour)
	$(BIN)/python bench/page.py

clean: ## remove the environment and all that can be made again (runs/ is yours and stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "unembed needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; } # half an environment would look like a whole one

$(VENV)/.runtime: $(REQUIREMENTS) | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.development: $(REQUIREMENTS) | $(BIN)/python
	$(PIP) -e '.[test,dev]'
	@touch $@ $(VENV)/.runtime
