# Every target brings what it needs; `make` alone lists them.
PYTHON ?= python3

.PHONY: help setup test demo bench soak lock rack rack-down audit rehearsal
.DEFAULT_GOAL := help

help:
	@echo "make demo    orders a cluster from the emulator, shows it, destroys it, and shows that nothing bills"
	@echo "make test    everything that this machine can run (TIERS=\"unit engine\" for some of it)"
	@echo "make bench   the benchmarks as a table (SUBJECTS=\"market provider\" for some of them)"
	@echo "make soak    a million lives of a stack, killed and recovered (SCHEDULES=20000 SEED=0 for some of them)"
	@echo "make rack    two virtual hosts (HOSTS=4 for four) with an inventory in .rack/; make rack-down ends them"
	@echo "make audit   looks at those hosts, or at your own (INVENTORY=hosts.yml), and says what a sale lacks"
	@echo "make rehearsal  pair verification of emulated hosts on this machine (HOSTS=300, FAULT=group)"
	@echo "make setup   the Python environment in .venv"
	@echo "make lock    renews requirements/dev.txt from pyproject.toml"

setup:
	@$(PYTHON) -m tools.environment

test: setup
	@$(PYTHON) -m tools.run_tests $(TIERS)

demo: setup
	@$(PYTHON) -m tools.demo

bench: setup
	@.venv/bin/python -m bench $(SUBJECTS)

lock: setup
	@$(PYTHON) -m tools.environment lock

# What fails is named with the command that tells its story (tools/soak.py).
soak: setup
	@.venv/bin/python -m tools.soak

# A rack of virtual hosts to run the collection on (tests/rack/README.md).
HOSTS ?= 2
rack: setup
	@.venv/bin/python -m tests.rack.cli up --hosts $(HOSTS)

# The rack of virtual hosts, or the hosts of INVENTORY, as the marketplace would see them. Changes nothing.
INVENTORY ?= .rack/inventory.yml
audit: $(if $(filter .rack/inventory.yml,$(INVENTORY)),rack,setup)
	@.venv/bin/ansible-playbook -i $(INVENTORY) lium.cluster.audit

rack-down: setup
	@.venv/bin/python -m tests.rack.cli down

# The playbook verify_roce and its agents against emulated hosts (tools/rehearsal), to see it at scale before a rack does.
rehearsal: setup
	@.venv/bin/python -m tools.rehearsal --hosts $(if $(filter command line environment,$(origin HOSTS)),$(HOSTS),32) $(if $(FAULT),--fault $(FAULT))
