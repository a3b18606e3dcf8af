# Everything a person does with Muster, one target each. `make help` lists them.
PY := .venv/bin/python
FAST := not slow and not browser and not processes
.DEFAULT_GOAL := help
# Images of Python like to set it; without bytecode each of many processes would compile all libraries again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup setup-dev demo run check lint types tests-fast test tests-rest tests-sqlite bench chaos screenshots

help:          ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup:         ## what running needs: the virtual environment, exactly as locked
	@sh deploy/setup.sh run

setup-dev:     ## what developing needs, too
	@sh deploy/setup.sh dev

demo: setup    ## everything on this machine, against a simulated cluster (PORT, VAR, DEMO_LOAD=0)
	@$(PY) -m controlplane.demo

run: setup     ## everything on this machine, against a real cluster (docs/operations.md)
	@$(PY) -m controlplane.processes

check: setup-dev  ## lint, types, import contracts, migrations in step, the fast tests
	@$(MAKE) --no-print-directory -j2 -Otarget lint-and-types tests-fast

lint-and-types: lint types
lint:
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/lint-imports
	DATABASE_URL=sqlite://:memory: $(PY) manage.py makemigrations --check --dry-run
	DATABASE_URL=sqlite://:memory: $(PY) manage.py check
types: lint
	.venv/bin/mypy .
tests-fast:
	.venv/bin/pytest -q -n 2 -m "$(FAST)"

test:          ## all of it: system packages, `check`, then the rest of the suite
	@sh deploy/system-packages.sh
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory tests-sqlite tests-rest
tests-sqlite:
	TEST_DATABASE=sqlite .venv/bin/pytest -q -n 2 -m "sqlite and $(FAST)"
tests-rest:
	.venv/bin/pytest -q -n 2 --dist loadgroup -m "not ($(FAST))"

bench: setup-dev  ## benchmarks, one JSON object a line
	@$(PY) -m benchmarks
chaos: setup-dev  ## long fault runs, seeded (SEED; RUNS=504 and HEALTH_RUNS=108 in virtual time, CRASHES=20 that kill real processes)
	CHAOS_SEED=$(SEED) CHAOS_RUNS=$(or $(RUNS),504) CHAOS_HEALTH_RUNS=$(or $(HEALTH_RUNS),108) \
		.venv/bin/pytest -q -rP -n 2 --dist load tests/chaos
	AGREEMENT_CASES=500 .venv/bin/pytest -q -rP tests/scheduler/test_agreement.py
	CHAOS_SCHEDULES=50 .venv/bin/pytest -q tests/simcluster/test_schedules.py
	CHAOS_SEED=$(SEED) CRASH_RUNS=$(or $(CRASHES),20) BROKER_AWAY_SECONDS=30 MIXES=200 \
		.venv/bin/pytest -q -s tests/e2e/test_crashes.py tests/e2e/test_production.py tests/e2e/test_mixes.py
screenshots: setup-dev  ## every screen in both themes, under VAR/screenshots (E2E_DEMO=VAR: of a running demo)
	@$(PY) -m tests.browser.draw $(or $(VAR),var)/screenshots
