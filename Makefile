# Two commands, each from a fresh clone: `make repro` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro test env docs clean

repro: $(VENV)/.installed
	@aces doctor
	dvc repro
	@aces summary

test: $(VENV)/.installed-test
	pytest

env: $(VENV)/.installed

docs: $(VENV)/.installed-test
	mkdocs build --strict

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,ray,docs]'
	touch $@

clean:
	rm -rf $(VENV) site
