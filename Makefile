# Two commands, each from a fresh clone: `make repro` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro paper-grid rules test check coverage env docs fuzz kills schema dependencies clean

repro: $(VENV)/.installed
	@aces estimate
	dvc repro
	@aces summary

# Every sigma with every training method, one experiment after the other, then all of them in one figure.
SIGMAS ?= 0.25,0.5,1.0
METHODS ?= gaussian,consistency
paper-grid: $(VENV)/.installed
	dvc exp run --queue -S 'sigma=$(SIGMAS)' -S 'certify.method=$(METHODS)'
	dvc exp run --run-all
	aces compare --out reports/paper-grid

# The two rules at the same price, on seven networks: reports/published/rules.md; half an hour or more.
rules: $(VENV)/.installed
	sh reports/published/rules.sh

# Two processes with one thread each; tests/conftest.py puts the longest files first.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder tests

# What to run before every commit: format, lint, types, and the tests that take seconds.
check: $(VENV)/.installed-dev
	ruff format --check .
	ruff check .
	mypy
	OMP_NUM_THREADS=1 pytest --quiet --numprocesses 2 --dist loadfile -m "not slow" tests

# What the fast tests reach: every branch of the mathematics, or it fails; and the share of everything.
coverage: $(VENV)/.installed-dev
	coverage erase
	OMP_NUM_THREADS=1 coverage run -m pytest --quiet --numprocesses 2 --dist loadfile -m "not slow" tests
	coverage combine --quiet
	coverage report --include 'aces/rule/*' --show-missing --fail-under 100
	coverage report

env: $(VENV)/.installed-dev

docs: $(VENV)/.installed-dev
	mkdocs build --strict

# 10,000 damaged files and requests; SEED=n for others.
fuzz: $(VENV)/.installed-dev
	python -m tests.fuzz --cases 10000 --seed $(or $(SEED),0)

# 35 kills at random moments: what goes on afterwards gives the same bytes; SEED=n for others.
kills: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 python -m tests.kills --seed $(or $(SEED),0)

# The description of params.yaml for editors.
schema: $(VENV)/.installed
	aces schema --out params.schema.json

# The code dependencies of dvc.yaml, from what each stage imports.
dependencies: $(VENV)/.installed
	python -m stages.dependencies --write

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# uv installs in seconds what takes pip minutes. torch comes by pip, which knows of local builds; where uv cannot be had
# or fails, pip installs everything. Neither compiles modules ahead: Python compiles those that are imported, once.
unexport PYTHONDONTWRITEBYTECODE
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
define install
	$(PIP) uv torch || $(PIP) torch
	$(BIN)/python -m uv pip install --quiet --system-certs --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]' || $(PIP) --editable '.[$(1)]'
endef

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,pipeline)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,dev)
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) site
