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

# Two processes, one thread each; the longest file first.
test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/test_pipeline.py tests

env: $(VENV)/.installed

docs: $(VENV)/.installed-test
	mkdocs build --strict

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# pip would compile every module there is, for minutes; Python compiles those that are imported, once, if it may keep them.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[test,ray,docs]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) site
