# rse-transcribe: `make serve` to run it, `make test` to check it.

HOST ?= 127.0.0.1
PORT ?= 8000
# Recordings with labels, for the accuracy benchmark.
SHARED ?= ../shared
LOOKAHEADS_MS ?= 50 100 190 372
# Weights. Default: live.
MODEL ?=
# A recording for bench-live.
AUDIO ?= $(firstword $(wildcard $(SHARED)/real/maps/flac/*.flac))
# An environment with basic-pitch and swift-f0 (tests/benchmarks/peer.py).
PEER ?= .venv-peer
# JSON output: a file for bench, a folder for bench-accuracy; empty: no JSON.
JSON ?=
# Any value: quick benchmarks.
QUICK ?=
PYTHON ?= python3
VENV ?= .venv

# Test processes: one more than cores (at most 5), because tests also wait.
PROCESSES ?= $(shell echo $$(($$(nproc) < 4 ? $$(nproc) + 1 : 5)))

PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Total number of inputs of `make fuzz`.
INPUTS ?= 200000

.PHONY: fuzz load lock sbom audit help serve test lint lint-page format bench bench-accuracy bench-live bench-peer train train-live train-light train-accurate clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 18

serve: $(VENV)/.installed ## set up once, then start the service on $(HOST):$(PORT)
	@exec $(PY) -m service --host $(HOST) --port $(PORT)

# Tests start many processes. Without cached bytecode each process would compile the sources.
test: lint ## format check, lint, types, tests
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

fuzz: $(VENV)/.installed-dev ## INPUTS=200000 random inputs to protocol, parser and decoders
	RSE_FUZZ_INPUTS=$(INPUTS) $(PY) -m pytest tests/fuzz -q

lint: $(VENV)/.installed-dev ## format check, lint and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory lint-page; \
	  elif [ -n "$$RSE_REQUIRE_SYSTEM" ]; then echo "npm is missing" >&2; exit 1; \
	  else echo "no npm: the page's JavaScript is not checked"; fi

# ESLint and TypeScript on the page's JavaScript.
TOOLING := tests/service/page/tooling
lint-page: $(TOOLING)/node_modules/.package-lock.json
	npm --prefix $(TOOLING) run --silent lint

$(TOOLING)/node_modules/.package-lock.json: $(TOOLING)/package-lock.json
	npm --prefix $(TOOLING) ci --silent --no-audit --no-fund
	@touch $@

format: $(VENV)/.installed-dev ## rewrite the sources in the project's format
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(VENV)/.installed-dev ## speed on this machine (QUICK=1: in minutes; JSON=FILE)
	$(PY) -m tests.benchmarks all $(if $(MODEL),--model $(MODEL)) \
	  $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

bench-live: $(VENV)/.installed-dev ## one 48 kHz stream of AUDIO=FILE at the pace of a microphone
	$(PY) -m tests.benchmarks live $(if $(AUDIO),--audio $(AUDIO)) $(if $(MODEL),--model $(MODEL))

load: $(VENV)/.installed-dev ## 1, half, all and twice the admitted sessions (QUICK=1, JSON=FILE)
	$(PY) -m tests.benchmarks load $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

train: train-$(or $(MODEL),live) ## weights MODEL=live, light or accurate, from SHARED/synth and real_train; call again to resume

REAL := $(wildcard $(SHARED)/real_train)
TRAIN = $(PY) -m training.run musicnet --music.synth.root $(SHARED)/synth \
  $(if $(REAL),--music.synth.real-root $(REAL))
SHIP = $(PY) -m training.shipping.ship --synth $(SHARED)/synth $(if $(REAL),--real $(REAL)) --weights last
resume = $(if $(wildcard $(1)/state.pt),--resume)

# Starts from random weights, two hours on two cores. Then two days at a lower learning rate.
train-live: $(VENV)/.installed-dev
	$(TRAIN) --preset live --out runs/live $(call resume,runs/live)
	$(TRAIN) --preset live-on --init runs/live/best.safetensors --out runs/live-on \
	  $(call resume,runs/live-on)
	$(SHIP) runs/live-on --name live

# Takes ten minutes on a data-centre GPU.
train-accurate: $(VENV)/.installed-dev
	$(TRAIN) --preset accurate --out runs/accurate $(call resume,runs/accurate)
	$(SHIP) runs/accurate --name accurate

# Continues "light" with "live" as its teacher. Takes two hours.
train-light: $(VENV)/.installed-dev
	$(TRAIN) --preset light --out runs/light $(call resume,runs/light)
	$(SHIP) runs/light --name light

bench-accuracy: $(VENV)/.installed-dev ## accuracy on real recordings, through the streaming path
	@status=0; for set in $(SHARED)/real/*/; do \
	  case $$set in */maps/) shift_ms=10;; *) shift_ms=0;; esac; \
	  $(PY) -m training.evaluate real --data-dir $$set --label-shift-ms $$shift_ms \
	    --lookahead-ms $(LOOKAHEADS_MS) --model $(or $(MODEL),live) \
	    $(if $(JSON),--json $(JSON)/$$(basename $$set).json) || status=1; \
	done; exit $$status

bench-peer: $(VENV)/.installed-dev ## compare the accuracy with other systems in the environment PEER=DIR
	@for set in $(SHARED)/real/*/; do \
	  case $$set in */maps/) shift_ms=10;; *) shift_ms=0;; esac; \
	  $(PY) -m tests.benchmarks.peer --data-dir $$set --peer $(PEER) --label-shift-ms $$shift_ms \
	    --lookahead-ms 200 --model $(or $(MODEL),live) \
	    $(if $(JSON),--json $(JSON)/peer_$$(basename $$set).json) || exit 1; \
	done

# Tools in a separate environment. They are not needed to run or to test the service.
SUPPLY := build/supply/bin

# Source of the CPU build of torch: PyTorch's index, or --find-links DIR.
TORCH ?= --torch-backend cpu

# For the Python version and the platform of the images, in which setuptools builds the package.
lock: $(VENV)/.installed-dev $(SUPPLY)/pip-licenses ## update docker/requirements.lock and LICENSES.md
	echo 'setuptools>=77' | $(SUPPLY)/uv pip compile pyproject.toml - --constraint constraints.txt \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_28 $(TORCH) --generate-hashes \
	  --no-annotate --extra score --custom-compile-command 'make lock' --output-file docker/requirements.lock --quiet
	$(SUPPLY)/pip-licenses --python $(PY) --format markdown --with-system --order name \
	  --packages $$(sed -n 's/==.*//p' docker/requirements.lock) > docker/LICENSES.md

sbom: $(VENV)/.installed $(SUPPLY)/cyclonedx-py ## build/sbom.json (CycloneDX) of the environment
	$(SUPPLY)/cyclonedx-py environment --output-file build/sbom.json $(PY)

audit: $(SUPPLY)/pip-audit ## list known vulnerabilities of locked packages (queries a public database)
	@# The database does not have the local version of torch.
	sed '/^torch==/s/+cpu//' docker/requirements.lock > build/audit.lock
	$(SUPPLY)/pip-audit --strict --no-deps --disable-pip --requirement build/audit.lock \
	  || { echo "audit: vulnerabilities above, or no database was reached" >&2; exit 1; }

$(SUPPLY)/%: | $(VENV)/bin/python
	@test -x $(SUPPLY)/pip || $(PY) -m venv build/supply
	$(SUPPLY)/pip install --quiet --disable-pip-version-check \
	  cyclonedx-bom==7.5.0 pip-audit==2.10.1 pip-licenses==5.5.5 uv==0.13.9

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files: a second call starts immediately, and changed requirements are installed again.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "No venv module: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (some minutes the first time) ..."
	$(PIP_INSTALL) --editable '.[score]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) with what tests need (some minutes the first time) ..."
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.installed
