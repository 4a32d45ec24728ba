# Everything a checkout needs; nothing is written outside of it.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: study test check bench clean
.DELETE_ON_ERROR:

study: .venv/ready  ## run the quickstart study: digits with 40 labels, offline; goes on where it was stopped
	$(BIN)/cbe run --resume studies/quickstart.yaml

test: .venv/ready  ## all tests, one process a core with one thread each; those on Ray share one cluster
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

check: .venv/ready  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready  ## speed, as ratios within one run; wants a machine that does nothing else
	$(BIN)/python -m benchmarks --json benchmarks/results.json

clean:
	rm -rf .venv

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed; set PYTHON=python3.x"'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-cache-dir -e '.[dev]'
	touch $@
