# Every target sets up .venv by itself when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests run in two processes, each with a Spark of its own.
TWO := -n 2 --dist worksteal

.PHONY: help demo test test-all testbed lint docs java clean

help:
	@echo "make demo      replay the flights of New York in 2013 as a stream (one to two minutes)"
	@echo "make test      the tests, without those marked slow"
	@echo "make test-all  all tests"
	@echo "make testbed   four sites on thin links, on this machine (needs root)"
	@echo "make lint      style, types and import rules"
	@echo "make docs      the documentation as a site, into site/"
	@echo "make clean     remove .venv, caches and the demo's output"
	@echo "Choose another Python with: make PYTHON=python3.12 ..."

demo: $(STAMP) java
	$(BIN)/transom demo

test: $(STAMP) java
	$(BIN)/python -m pytest -q $(TWO) --durations=25

test-all: $(STAMP) java
	$(BIN)/python -m pytest -q $(TWO) -m "" --compiled --durations=25 --hypothesis-profile random --timeout 3600
	$(BIN)/python -m pytest -q $(TWO) tests/exact --tier cluster
	$(BIN)/python -m pytest -q $(TWO) tests/exact --lane auto

testbed: $(STAMP) java
	$(BIN)/python -m benchmarks.testbed

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_prose.py

docs: $(STAMP)
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	$(BIN)/python docs/pictures/draw.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(STAMP): pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Transom needs Python 3.11 or newer, and $(PYTHON) is not: install one, or name it with make PYTHON=python3.12." >&2; exit 1; }
	@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || { \
	  echo "Setting up $(VENV) ..."; rm -rf "$(VENV)" && "$(PYTHON)" -m venv "$(VENV)" || { \
	  echo "Python could not make a virtual environment: install its venv module (Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }; }
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -e ".[dev,demo,bench,recovery]"
	@touch $@

java:
	@JAVA="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	MAJOR=$$("$$JAVA" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	[ "$${MAJOR:-0}" -ge 17 ] || { \
	  echo "Spark 4.3 needs Java 17 or newer, and $$JAVA is $${MAJOR:+version }$${MAJOR:-not there}: install one (for example apt-get install openjdk-17-jre-headless), or point JAVA_HOME at it." >&2; exit 1; }

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out site
