# One command each: `make demo` sets up and runs the main job, `make test` sets up and tests.
.PHONY: help demo test lint types pytest docs benchmarks clean
.DEFAULT_GOAL := help

# The first interpreter that is new enough; .python-version makes pyenv and uv agree with it.
PYTHON ?= $(shell for python in python3.13 python3 python3.14 python3.12; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)
BIN := .venv/bin

help:  ## Show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/demo.stamp  ## Set up, then fit a CMP model to the sales data: table and picture
	$(BIN)/python -m pymc_bayessum demo

test: lint types pytest  ## Set up, then lint, types and all tests

lint: .venv/tests.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/tests.stamp
	$(BIN)/mypy

# Two workers with a thread each: more threads than cores slow each other down.
pytest: .venv/tests.stamp
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --doctest-modules tests pymc_bayessum $(PYTEST_ARGS)

docs: .venv/docs.stamp  ## Set up, build the documentation into docs/_build/html, look at each page
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	$(BIN)/pytest -q tests/whole/test_pages.py

benchmarks: .venv/tests.stamp  ## Print every benchmark table in its quick form
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

clean:  ## Remove the environment and everything built
	rm -rf .venv build dist docs/_build .pytest_cache .mypy_cache .ruff_cache

.venv/venv.stamp:
	@test -n "$(PYTHON)" || { echo "pymc_bayessum needs Python 3.12 or newer: install one (for \
	example 'pyenv install 3.13' or 'uv python install 3.13') or name it: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

.venv/demo.stamp: .venv/venv.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable ".[nutpie,plots]"
	@touch $@

.venv/tests.stamp: .venv/venv.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable ".[nutpie,jax,bambi,plots,notebooks,tests]"
	@touch $@

.venv/docs.stamp: .venv/tests.stamp pyproject.toml
	$(BIN)/pip install --quiet --editable ".[docs]"
	@touch $@
