# The commands of this repository. `make help` lists them.
#
# A stamp file in the virtual environment, named after the content of what it was made from, makes the second run of
# everything instant and a changed pin or a moved folder install anew.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
UV := $(shell command -v uv 2>/dev/null)
CHECKS ?= ruff format mypy imports pytest
PYTEST_ARGS ?=
KEEP ?=
UPGRADE ?=

stamp = $(VENV)/.$(1)-$(shell { pwd; cat requirements/build.txt $(2) pyproject.toml; } | sha256sum | cut -c1-16)
RUNTIME := $(call stamp,runtime,requirements/runtime.txt)
DEV := $(call stamp,dev,requirements/dev.txt)

.PHONY: help setup setup-dev demo test test-long bench fmt pins clean

help: ## list these commands
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1 @\2/p' Makefile | column -t -s @

setup: $(RUNTIME) ## install Cumulo and what it needs into .venv
	@echo "Cumulo is installed: $(VENV)/bin/cumulo"

setup-dev: $(DEV) ## the same, with the tools that test it

demo: $(RUNTIME) ## train a classifier on a cloud of one machine (KEEP=1 leaves the cloud up)
	@$(VENV)/bin/python examples/demo.py $(if $(KEEP),--keep)

test: $(DEV) ## every check and all but the long tests (CHECKS="ruff mypy", PYTEST_ARGS="-k why")
	@CHECKS="$(CHECKS)" .ci/checks $(PYTEST_ARGS)

test-long: $(DEV) ## the kill and load tests that take minutes
	@CHECKS=pytest .ci/checks -m long --timeout 1500 -n 2 $(PYTEST_ARGS)

bench: $(DEV) ## measure the budgets on this machine
	@$(VENV)/bin/python -m bench

fmt: $(DEV) ## format the code and mend what ruff can mend
	@$(VENV)/bin/ruff check --fix --quiet || true
	@$(VENV)/bin/ruff format

pins: ## pin every dependency with hashes (UPGRADE=1 takes newer versions); needs uv
	@.ci/pins $(if $(UPGRADE),--upgrade)

clean: ## remove the virtual environment, caches and build outputs
	rm -rf $(VENV) .venv-torch .demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .schemathesis
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.runtime-%:
	@UV="$(UV)" .ci/install $(VENV) requirements/runtime.txt
	@rm -f $(VENV)/.runtime-*; touch $@

$(VENV)/.dev-%:
	@UV="$(UV)" .ci/install $(VENV) requirements/dev.txt
	@rm -f $(VENV)/.dev-* $(VENV)/.runtime-*; touch $@ $(RUNTIME)
