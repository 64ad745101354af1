# SPDX-License-Identifier: Apache-2.0
#
# Every goal sets itself up in .venv, from a clean clone, and does so again when setup.cfg or the
# sources have changed. Nothing outside this directory is touched. Another interpreter:
#
#     make test PYTHON=python3.13
#
# Parts of the suite:           make test TESTS=tests.wire
# The campaigns in short form:  make test-campaigns
# More or fewer processes:      make test JOBS=2
# Keep their files in memory, where syncing takes no time (some 2 GB): make test TEMP=/dev/shm
# Keep how long tests take, by which they are ordered:  make test AMQPROUTE_SECONDS=write

PYTHON ?= python3
VENV   ?= .venv
TESTS  ?= tests
# Half of what a test with daemons takes is waiting: one process more than a small machine has cores;
# and two where the tests are campaigns, which wait most of the time.
JOBS   ?= $(if $(PART),4,3)
# Seconds before a run of the suite is ended: a test that hangs is a failure, not a wait.
LIMIT  ?= 3000

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --no-input
TRIAL   := $(BIN)/python -m twisted.trial
SUITE   = $(if $(TEMP),env TMPDIR=$(TEMP)) $(BIN)/python -m tests $(PART) -j$(JOBS) \
	$(if $(TEMP),--temp-directory=$(TEMP)/_trial_temp) $(TESTS)
SOURCES := $(shell find amqproute plugins -name '*.py' 2>/dev/null) $(wildcard amqproute/config/*.yaml)
BASIS   := setup.cfg pyproject.toml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-campaigns golden test-long test-crash test-cluster test-network \
	test-systemd faults fuzz lock sbom attacks damage soak mutants bench lint types wheel format clean

help: ## say what there is
	@echo 'make GOAL, where GOAL is one of'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18

demo: $(VENV)/.package ## two daemons, two domains, messages from one to the other: the main job
	$(BIN)/amqproute demo --journals demo-journals $(DEMO)

test: $(VENV)/.test ## the ordinary tests, in three processes: the whole suite without campaigns
	timeout --kill-after=20 $(LIMIT) $(SUITE)

test-campaigns: PART = --campaigns
test-campaigns: $(VENV)/.test ## short forms of campaigns: kills, full disks, attacks, other makes
	timeout --kill-after=20 $(LIMIT) $(SUITE)

golden: $(VENV)/.test ## write the golden files of the outer surface anew: read git diff before a commit
	$(BIN)/python -m tests.golden

test-long: $(VENV)/.test ## the same with 50 times as many random examples; takes long
	AMQPROUTE_HYPOTHESIS=long timeout --kill-after=20 21600 $(SUITE)

test-crash: $(VENV)/.test ## kill daemons at random while messages pass; count what arrives
	AMQPROUTE_CRASH=long timeout --kill-after=20 7200 $(TRIAL) tests.integration

test-cluster: CLUSTER = long
test-cluster: $(VENV)/.test ## kill workers of a Spark cluster in each phase, and drivers; CLUSTER=short
	AMQPROUTE_CLUSTER=$(CLUSTER) timeout --kill-after=20 7200 $(TRIAL) tests.pipeline.test_cluster \
	  tests.pipeline.test_beside

test-network: $(VENV)/.test ## five organizations on hosts of their own, on a bad wire
	AMQPROUTE_NETWORK=long timeout --kill-after=20 3600 $(TRIAL) tests.network.test_hosts

test-systemd: $(VENV)/.test ## the units under a systemd that runs, with the pipeline (as root)
	AMQPROUTE_SYSTEMD=long timeout --kill-after=20 3600 $(TRIAL) tests.integration.test_machine

fuzz: $(VENV)/.test ## 20,000 broken streams of AMQP 0-9-1; FUZZ="SEED STREAMS"
	timeout --kill-after=20 7200 $(BIN)/python -m tests.frontends.amqp09.fuzz $(FUZZ)

faults: $(VENV)/.test ## the fault campaign, long: writes benchmarks/faults.md
	timeout --kill-after=20 7200 $(BIN)/python -m benchmarks.faults $(FAULTS)

soak: $(VENV)/.test ## memory of a daemon while strangers fail at everything; SOAK="--seconds 3600"
	timeout --kill-after=20 14400 $(BIN)/python -m benchmarks.soak $(SOAK)

attacks: $(VENV)/.test ## strangers attack; in parts: ATTACKS="--part alone-1"; writes benchmarks/attacks.md
	timeout --kill-after=20 14400 $(BIN)/python -m benchmarks.attacks $(ATTACKS)

damage: $(VENV)/.test ## damage each file of a store; in parts: DAMAGE="--part stopped-1"; writes benchmarks/damage.md
	timeout --kill-after=20 14400 $(BIN)/python -m benchmarks.damage $(DAMAGE)

mutants: $(VENV)/.test ## plant small faults, which tests have to find; writes tests/MUTANTS.md
	$(BIN)/python -m tests.mutants cover
	$(BIN)/python -m tests.mutants run $(MUTANTS)

bench: $(VENV)/.package ## messages a second, CPU a message, latency, over loopback
	$(BIN)/amqproute bench relay $(BENCH)

lint: $(VENV)/.test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test ## ruff: put the format right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.test ## mypy, strict
	$(BIN)/mypy

wheel: $(VENV)/.test ## dist/amqproute-*.whl
	rm -rf build dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

# The versions that CI installs and deployments may (README, "Install"), for every Python and machine.
# What is pinned stays as it is while setup.cfg allows it; newer ones: make lock LOCK=--upgrade
COMPILE = $(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-config \
	--custom-compile-command 'make lock' $(LOCK) setup.cfg

lock: $(VENV)/.lock ## requirements*.lock: pinned versions with hashes, from setup.cfg
	$(COMPILE) -o requirements.lock
	$(COMPILE) --extra pipeline --constraint requirements.lock -o requirements-pipeline.lock
	$(COMPILE) --extra tracing --constraint requirements.lock -o requirements-tracing.lock

# The wheel among the locked versions, in an environment that has nothing else.
sbom: wheel $(VENV)/.lock ## dist/amqproute-*.cdx.json: what a deployment consists of (CycloneDX)
	rm -rf $(VENV)/deployed
	$(BIN)/python -m venv --without-pip $(VENV)/deployed
	$(PIP) --python $(VENV)/deployed install --quiet --require-hashes -r requirements.lock
	$(PIP) --python $(VENV)/deployed install --quiet --no-index --no-deps --find-links dist amqproute
	$(VENV)/lock/bin/cyclonedx-py environment --output-reproducible --of JSON \
	  -o $$(ls dist/amqproute-*.whl | sed 's/-py3-none-any\.whl$$/.cdx.json/') $(VENV)/deployed
	@ls dist/*.cdx.json

clean: ## remove everything that was made, the environment too
	rm -rf $(VENV) build dist *.egg-info _trial_temp* .mypy_cache .ruff_cache .hypothesis .coverage
	find amqproute plugins tests -name __pycache__ -prune -exec rm -rf {} +
	find plugins -name dropin.cache -delete

# -- The environment: a file for each step that was completed -----------------------------------

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'amqproute needs Python 3.11 or later; "$(PYTHON)" is' \
	    "$$($(PYTHON) --version 2>/dev/null || echo 'not there')." \
	    'Name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3.13' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
	  echo 'This Python has no venv. On Debian: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What the package needs to run. build/ goes first each time: modules that were deleted from the
# sources live on in it and would be installed again.
$(VENV)/.needs: $(VENV)/.python $(BASIS) requirements.lock
	rm -rf build
	$(PIP) install --quiet 'setuptools >= 75'
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet .
	@rm -rf build
	@touch $@

# The package as its users get it: a copy. An editable install would hide the plugin from twistd,
# and a file that is missing from the wheel from everybody.
$(VENV)/.package: $(VENV)/.needs $(SOURCES)
	rm -rf build
	$(PIP) install --quiet --no-deps --force-reinstall --no-build-isolation .
	@rm -rf build
	@touch $@

# In an environment of their own: what they need is nobody else's business.
$(VENV)/.lock: $(VENV)/.python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
	  'uv >= 0.9' 'cyclonedx-bom >= 7'
	@touch $@

$(VENV)/.test: $(VENV)/.tools $(VENV)/.interop $(VENV)/.suites $(VENV)/.pipeline $(VENV)/.classes \
  $(VENV)/.package
	@touch $@

$(VENV)/.tools: $(VENV)/.needs
	$(PIP) install --quiet '.[test]'
	@rm -rf build
	@touch $@

# Qpid Proton is compiled here; Azure's clients are wheels or nothing. Where one of them fails, the
# rest is tested all the same.
$(VENV)/.interop: $(VENV)/.tools
	@$(PIP) install --quiet --only-binary uamqp,azure-servicebus '.[azure]' \
	  > $(VENV)/azure.log 2>&1 && rm -rf build \
	  || echo "make: Azure's clients cannot be had here; their tests are skipped. See $(VENV)/azure.log."
	@$(PIP) install --quiet --only-binary uamqp,azure-servicebus '.[interop]' \
	  > $(VENV)/interop.log 2>&1 && rm -rf build \
	  || { echo 'make: python-qpid-proton cannot be built here; the tests that talk with it are skipped.'; \
	       echo 'make: It needs a C compiler, Python.h, pkg-config and OpenSSL headers'; \
	       echo 'make: (Debian: gcc python3-dev pkg-config libssl-dev). See $(VENV)/interop.log;'; \
	       echo 'make: to try again: rm $(VENV)/.interop'; }
	@touch $@

# Integration suites of clients of AMQP 0-9-1: they are in the source distributions only.
$(VENV)/.suites: $(VENV)/.tools
	@rm -rf $(VENV)/suites
	@{ $(PIP) install --quiet '.[suites]' && rm -rf build \
	  && for each in amqp kombu; do \
	    version=$$($(BIN)/python -c "import importlib.metadata as m; print(m.version('$$each'))") \
	      && $(PIP) download --quiet --no-deps --no-binary $$each --no-build-isolation \
	        --dest $(VENV)/suites "$$each==$$version" \
	      && tar -xzf $(VENV)/suites/$$each-$$version.tar.gz -C $(VENV)/suites || exit 1; \
	  done; } > $(VENV)/suites.log 2>&1 \
	  || echo "make: the suites of py-amqp and kombu cannot be had here; they are skipped. See $(VENV)/suites.log."
	@touch $@

# Spark is large (450 MB). Where it cannot be had, the rest is tested all the same.
$(VENV)/.pipeline: $(VENV)/.tools
	@{ $(PIP) install --quiet --require-hashes -r requirements-pipeline.lock \
	  && $(PIP) install --quiet '.[pipeline]'; } > $(VENV)/pipeline.log 2>&1 && rm -rf build \
	  || { echo 'make: the extra "pipeline" cannot be installed here; the tests of the pipeline are'; \
	       echo 'make: skipped. See $(VENV)/pipeline.log; to try again: rm $(VENV)/.pipeline'; }
	@touch $@

# What a JVM makes of Spark's classes at its start, kept for those that the tests start.
$(VENV)/.classes: $(VENV)/.pipeline tests/pipeline/classes.py
	@$(BIN)/python -m tests.pipeline.classes || echo 'make: the tests of the pipeline take longer so.'
	@touch $@
