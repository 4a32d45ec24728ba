# Everything a checkout needs is installed into its .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-cache-dir
# One thread a process: they share the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: study test test-fast chaos check bench pictures wheel docs clean
.DELETE_ON_ERROR:

study: .venv/ready  ## run the quickstart study: digits with 40 labels, offline; goes on where it was stopped
	$(BIN)/cbe run --resume studies/quickstart.yaml

test: .venv/ready-dev  ## all tests but the long ones of `make chaos`
	$(PYTEST) -n auto -m "not chaos" --durations=10

test-fast: .venv/ready-dev  ## tests that need neither Ray nor a browser
	$(PYTEST) -n auto -m "not chaos and not ray and not browser"

chaos: .venv/ready-dev  ## long faults and load: lost machines, repeated kills, readers
	$(PYTEST) -n auto -m chaos

check: .venv/ready-dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready-dev  ## speed, as ratios within one run; wants a machine that does nothing else
	$(BIN)/python -m benchmarks --json benchmarks/results.json

pictures: .venv/ready-dev  ## the pictures of README and the documentation; needs Chromium
	$(BIN)/python -m docs.pictures

wheel: .venv/ready  ## dist/*.whl, to install where there is no checkout; downloads nothing
	rm -rf build dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build
	ls dist

docs: .venv/ready-dev  ## the documentation as a website in site/, which opens without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed; set PYTHON=python3.x"'
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/ready-dev: .venv/ready  ## what only tests and checks need
	$(PIP) -e '.[dev]'
	touch $@
