# make demo, make deploy-demo: see it work.  make test: lint, types, tests.  Everything lives in .venv; nothing else is touched.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo deploy-demo test test-slow test-gpu lint bench clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedgala needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/fedgala demo

deploy-demo: setup
	$(BIN)/fedgala deploy demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

test-slow: setup
	$(BIN)/pytest -m slow

test-gpu: setup
	$(BIN)/pytest -m gpu

bench: setup
	$(BIN)/fedgala bench

clean:
	rm -rf .venv demo deploy-demo
