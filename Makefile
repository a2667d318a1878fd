# Everything a developer does, on a machine with python3 and make.
# The environment in .venv is made once and renewed when pyproject.toml or constraints.txt change.

PYTHON ?= python3
# Where the demo keeps its store and its lake, where it listens, and what else it is told (RUN_ARGS=--no-spark).
DEMO ?= ./penstock-demo
PORT ?= 6380
HTTP_PORT ?= 8080
RUN_ARGS ?=
PYTEST_ARGS ?=
# Test processes; most tests wait for servers most of the time. Files are taken in their order: sorted by their number
# of tests, the few that kill processes would come last, one after the other.
JOBS ?= 3
# How much `make soak` tries: a factor for random tests, and how long each storm of kills lasts.
EFFORT ?= 10
SOAK_SECONDS ?= 120
SOAK := tests/crash tests/model tests/fuzz $(addprefix tests/,channels/test_random_sequences.py channels/test_stores_model.py \
	client/test_faults.py client/test_faults_cluster.py gateway/test_schemathesis.py integration/test_client_faults.py)
# What the benchmarks are told (BENCH_ARGS="streams spark.source --scale 0.1"), and whether they write their page.
BENCH_ARGS ?=
WRITE ?=
# What `make fuzz` sends; for how long it and `make chaos` go on, and which numbers they draw.
TARGET ?= all
MINUTES ?= 5
SEED ?=
CHAOS_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# What is installed. Names, since a comma inside $(call …) would end its argument.
RUN := .[archive,gateway,cli,spark]
DEV := .[archive,gateway,cli,spark,test,check,bench]
DOCS := .[docs]
# Build backends come first, pinned like the rest, so that no build fetches its own: ours, and the one of PySpark,
# which is on PyPI as source only.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test test-browser soak fuzz chaos check format bench bench-large docs clean
.DELETE_ON_ERROR:

help: ## show this list
	@echo "Penstock: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

run: $(VENV)/.stamp-run ## a sample shop, and the console to watch it with (DEMO=, PORT=, HTTP_PORT=, RUN_ARGS=)
	@exec $(BIN)/penstock demo $(DEMO) --port $(PORT) --http-port $(HTTP_PORT) $(RUN_ARGS)

# Tests start hundreds of processes, each of which would compile everything anew if bytecode were not kept.
test test-browser soak chaos bench bench-large: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.stamp-dev ## run all tests (PYTEST_ARGS="-k lists -x")
	@$(BIN)/python -m pytest -m "not soak" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# `make test` uses a Chromium that is there already, and leaves these tests out if there is none.
test-browser: export PENSTOCK_NEEDS_CHROMIUM := 1
test-browser: $(VENV)/.stamp-dev ## install Chromium, and run the tests of the console in it
	@PENSTOCK_CHROMIUM=$$($(BIN)/python scripts/get_chromium.py) && export PENSTOCK_CHROMIUM && \
		$(BIN)/python -m pytest -n $(JOBS) tests/browser $(PYTEST_ARGS)

soak: export PENSTOCK_TEST_EFFORT := $(EFFORT)
soak: export PENSTOCK_CRASH_SECONDS := $(SOAK_SECONDS)
soak: $(VENV)/.stamp-dev ## hours of random tests and kills (EFFORT=, SOAK_SECONDS=)
	@$(BIN)/python -m pytest -n 0 --timeout 3600 $(SOAK) $(PYTEST_ARGS)

fuzz: $(VENV)/.stamp-dev ## hostile input (TARGET=, MINUTES=, SEED=)
	@$(BIN)/python -m tests.fuzz $(TARGET) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

chaos: $(VENV)/.stamp-dev ## faults of every kind under load, then the books (MINUTES=, SEED=, CHAOS_ARGS=)
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

check: $(VENV)/.stamp-dev ## lint, formatting, types, import contracts, links of the documentation, secrets, dependencies
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python scripts/check_docs.py
	@$(BIN)/python scripts/scan_secrets.py
	@$(BIN)/python scripts/scan_dependencies.py

format: $(VENV)/.stamp-dev ## rewrite the code in the common style
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

bench: $(VENV)/.stamp-dev ## beside the peers, ten minutes (BENCH_ARGS=; WRITE=1 for docs/benchmarks.md)
	@$(BIN)/python -m bench $(if $(WRITE),--write-docs) $(BENCH_ARGS)

# The page has what `make bench` found before, too.
bench-large: $(VENV)/.stamp-dev ## what needs an hour and 20 GB of disk (BENCH_ARGS=, WRITE=1)
	@$(BIN)/python -m bench --large $(BENCH_ARGS)
	@$(if $(WRITE),$(BIN)/python -m bench --write-docs $(addprefix --show ,$(wildcard bench/results/short.json) bench/results/large.json))

docs: $(VENV)/.stamp-docs ## build the documentation site into site/
	@$(BIN)/python scripts/make_site.py

clean: ## remove .venv, caches and build products; stores are left alone
	rm -rf $(VENV) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Output of pip is shown only when it fails: $(call install,WHAT)
define install
@$(PYTHON) scripts/make_venv.py $(VENV)
@echo "Installing into $(VENV) …"
@{ $(PIP) hatchling setuptools wheel && $(PIP) --no-build-isolation -e "$(1)"; } >$(VENV)/install.log 2>&1 \
	|| { cat $(VENV)/install.log; exit 1; }
endef

$(VENV)/.stamp-run: pyproject.toml constraints.txt
	$(call install,$(RUN))
	@touch $@

# The development environment serves `make run` too.
$(VENV)/.stamp-dev: pyproject.toml constraints.txt
	$(call install,$(DEV))
	@touch $@ $(VENV)/.stamp-run

# Beside what is there: the site is made of texts, and needs nothing of ours.
$(VENV)/.stamp-docs: pyproject.toml constraints.txt
	$(call install,$(DOCS))
	@touch $@
