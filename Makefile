# Every target but clean makes .venv first when it is missing or older than what it was made from.
#   make train ARGS="optimizer=sgd seed=1"   make test   make test-slow   make lint   make bench   make verify
# PYTHON=/path/to/python3.12 names the Python that makes .venv. All paths are relative: a clone's path may hold spaces.

VENV_PYTHON := .venv/bin/python
STAMP := .venv/.installed
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
ARGS ?=

.PHONY: train test test-slow lint format bench verify clean
.DEFAULT_GOAL := test

train: $(STAMP)
	@$(VENV_PYTHON) train.py $(ARGS)

test: $(STAMP)
	$(VENV_PYTHON) -m pytest -n 2 $(ARGS)

# pytest answers 5 when it found no test to run
test-slow: $(STAMP)
	$(VENV_PYTHON) -m pytest -n 2 -m "slow or gpu or cluster" $(ARGS) || [ $$? -eq 5 ]

lint: $(STAMP)
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

format: $(STAMP)
	$(VENV_PYTHON) -m ruff check --fix .
	$(VENV_PYTHON) -m ruff format .

bench: $(STAMP)
	$(VENV_PYTHON) -m benchmarks.startup
	$(VENV_PYTHON) -m benchmarks.update_cost
	$(VENV_PYTHON) -m benchmarks.peers
	$(VENV_PYTHON) -m benchmarks.input
	$(VENV_PYTHON) -m benchmarks.checkpointing
	$(VENV_PYTHON) -m benchmarks.sweeps

# The quick entries of the ledger, repeated by this code; those whose data has to be downloaded where it is there
verify: $(STAMP)
	@found=0; \
	$(VENV_PYTHON) reproduce.py experiments/digits_default --code here || found=$$?; \
	if [ -d data/FashionMNIST/raw ] && [ -d experiments/fashion_mnist_optimizers ]; then \
	  $(VENV_PYTHON) reproduce.py experiments/fashion_mnist_optimizers --code here --data-dir data || found=$$?; fi; \
	exit $$found

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# The stamp is written last, so an install that was cut off is done again. A venv that works is kept and brought up to date;
# one without a working pip, or of a Python that is not supported, is made anew.
$(STAMP): pyproject.toml constraints.txt
	@if ! { $(VENV_PYTHON) -c '$(SUPPORTED)' && $(VENV_PYTHON) -m pip --version; } >/dev/null 2>&1; then \
	  found=; for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	    if "$$python" -c '$(SUPPORTED)' >/dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "make: needs Python 3.11, 3.12 or 3.13 with its venv module; $(or $(PYTHON),python3) is $$("$(or $(PYTHON),python3)" --version 2>/dev/null || echo missing): install one, or say make PYTHON=/path/to/it" >&2; \
	    exit 1; \
	  fi; \
	  "$$found" -m venv --clear .venv; \
	fi
	@echo "make: bringing .venv up to date (minutes the first time)" >&2
	$(VENV_PYTHON) -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@
