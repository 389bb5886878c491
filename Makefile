# Every target brings what it needs; `make` alone lists them.
PYTHON ?= python3

.PHONY: help setup test demo bench lock
.DEFAULT_GOAL := help

help:
	@echo "make demo    orders a cluster from the emulator, shows it, destroys it, and shows that nothing bills"
	@echo "make test    everything that this machine can run (TIERS=\"unit engine\" for some of it)"
	@echo "make setup   the Python environment in .venv"
	@echo "make lock    renews requirements/dev.txt from pyproject.toml"

setup:
	@$(PYTHON) -m tools.environment

test: setup
	@$(PYTHON) -m tools.run_tests $(TIERS)

demo: setup
	@$(PYTHON) -m tools.demo

lock: setup
	@$(PYTHON) -m tools.environment lock
