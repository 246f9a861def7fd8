# Every task of the project. CI calls only these. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.dev-installed

.DEFAULT_GOAL := help

help:  ## list the tasks
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'

$(BIN)/mcpiac: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): $(BIN)/mcpiac
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev
	@touch $@

install: $(BIN)/mcpiac  ## make .venv with the product in it

dev: $(DEV)  ## make .venv with the product and what its tests need

format: $(DEV)  ## rewrite the code in the house style
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix-only src tests

check: $(DEV)  ## format, lint, types, import rule
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(DEV)  ## the fast tests (a few minutes)
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

bench: $(DEV)  ## measure it, beside its bars and terraform; let nothing else run meanwhile
	$(BIN)/python -m tests.bench.bench

golden: $(DEV)  ## write the rendered text in tests/golden anew; look at the diff
	MCPIAC_GOLDEN=write $(BIN)/pytest tests/unit/ui/test_golden.py tests/unit/stack

docs: $(DEV)  ## write the parts of docs/ that are made from the code anew
	MCPIAC_DOCS=write $(BIN)/pytest tests/unit/cli/test_commands_page.py

clean:  ## remove what the tasks made (not the fleet: see demo-clean)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

.PHONY: help install dev format check test bench golden docs clean

# The demo: two real servers from npm, each in a sandbox of its own. The tokens are fake, and say so.
demo: $(BIN)/mcpiac  ## run two real MCP servers, each in a sandbox of its own, and prove it
	@echo 'Two fake tokens are set for this demo; nothing outside knows them:'
	@echo '  FILES_SERVER_TOKEN=fake-files-token   EVERYTHING_SERVER_TOKEN=fake-everything-token'
	@echo
	@export FILES_SERVER_TOKEN=fake-files-token EVERYTHING_SERVER_TOKEN=fake-everything-token; \
	    set -e; $(BIN)/mcpiac apply -y demo; echo; $(BIN)/mcpiac verify demo
	@echo
	@echo 'The fleet is running. Connect Claude Code:   $(BIN)/mcpiac connect --print claude-code'
	@echo 'Its tokens, for the shell that starts it:    eval "$$($(BIN)/mcpiac env)"'
	@echo 'Take it down:                                make demo-clean'

demo-clean: $(BIN)/mcpiac  ## take the demo down and end the daemon
	@$(BIN)/mcpiac destroy -y demo
	@$(BIN)/mcpiac daemon stop

.PHONY: demo demo-clean

sim: $(DEV)  ## play simulated histories: make sim SEED=1 RUNS=20000
	$(BIN)/python -W ignore -m tests.sim --seed $(or $(SEED),1) --runs $(or $(RUNS),1000)

.PHONY: sim
