# Every target first installs its dependencies, only if they have changed.

PYTHON ?= python3
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TORCH := $(VENV)/.torch
ENGINES := $(VENV)/.engines
TRAINERS := $(VENV)/.trainers
# Frameworks pin conflicting versions, so each has an environment of its own.
JAX_VENV := .venv-jax
JAX := $(JAX_VENV)/.installed
HTA_VENV := build/hta
HTA := $(HTA_VENV)/.installed

# Tests on real traces run only if the folder of traces exists.
TRACES := $(realpath $(CURDIR)/../shared/traces)
ifneq ($(TRACES),)
AUGURY_TRACES ?= $(TRACES)
export AUGURY_TRACES
endif

.DEFAULT_GOAL := help
.PHONY: help install demo test test-more browser soak lint bench validate env-jax env-hta clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## create .venv with augury, its kernel and the tools
	@echo "ready: $(BIN)/augury --help"

demo: $(TORCH) ## record a real training of two processes, diagnose it, plan, follow the plan, compare, write a page
	@$(BIN)/augury demo --force --out build/demo
	@echo "(augury is $(BIN)/augury here)"

test: lint $(TORCH) ## lint, then the fast tests, with coverage of core/ and replay/
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --max-worker-restart 0 -m "not more" --cov --cov-fail-under 90

test-more: $(TORCH) $(ENGINES) $(TRAINERS) browser ## slow tests: many real processes, browsers, trainers
	@$(BIN)/python -m pytest -m more

# Arguments of `python` for each part; ARGS='...' is appended.
SOAK_files = -m tests.mutated_files --out build/soak-files.json $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))
SOAK_plans = -m tests.runtime.fuzz --out build/soak.json $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))
SOAK_random := -m pytest -n $(JOBS) -m hypothesis --hypothesis-profile soak
SOAK_PARTS := $(patsubst SOAK_%,%,$(filter-out SOAK_PARTS,$(filter SOAK_%,$(.VARIABLES))))

soak: $(TORCH) ## long random campaigns, in parts (PART=plans, PART=files, both resumable: SEED=first, COUNT=number; PART=random)
	@$(if $(filter $(PART),$(SOAK_PARTS)),,$(error make soak PART=... needs one of: $(SOAK_PARTS)))
	@$(BIN)/python $(SOAK_$(PART)) $(ARGS)

lint: $(INSTALLED) ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check --quiet --output-format concise
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --strict --no-error-summary
	@said=$$($(BIN)/lint-imports) || { echo "$$said"; exit 1; }
	@echo "lint: ruff, mypy --strict and import-linter pass"

bench: $(TORCH) $(if $(AUGURY_TRACES),$(HTA)) ## measure performance, as JSON lines
	@$(BIN)/python -m benchmarks.run

validate: $(TORCH) $(if $(filter all wire,$(or $(SUITE),all)),$(JAX)) $(if $(filter all trainers optimize,$(or $(SUITE),all)),$(TRAINERS)) ## compare predictions with real runs (SUITE=schedule, ONLY='conv-*', QUICK=1, FRESH=1)
	@$(BIN)/python -m benchmarks.validate --suite $(or $(SUITE),all) $(if $(ONLY),--only '$(ONLY)') \
	  $(if $(QUICK),--quick) $(if $(FRESH),--fresh)

env-jax: $(JAX) ## create .venv-jax, for the JAX job of `make validate SUITE=wire`

env-hta: $(HTA) ## create build/hta, for the comparison with HTA in `make bench`

clean: ## remove .venv and all build products
	rm -rf $(VENV) $(JAX_VENV) build dist src/augury/_native*.so .coverage .coverage.* \
	  .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Augury needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

# If a compiler works, a kernel that fails to compile is an error; without one, the kernel is skipped.
$(INSTALLED): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*) | $(BIN)/pip
	@echo "installing into $(VENV), once ..." >&2
	@if echo 'int main() {}' | $${CXX:-c++} -x c++ -fsyntax-only - 2> /dev/null; \
	  then export AUGURY_REQUIRE_NATIVE=1; \
	  else echo "no working C++ compiler found: replay will use the slower Python reference" >&2; \
	  fi; \
	  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Separate, since only some targets need a framework.
$(TORCH): constraints.txt | $(INSTALLED)
	@echo "installing torch into $(VENV), once ..." >&2
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --constraint constraints.txt torch
	@touch $@

# Clusters of Ray and Dask, for the tests that start one.
$(ENGINES): constraints.txt | $(INSTALLED)
	@echo "installing ray and dask into $(VENV), once ..." >&2
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --constraint constraints.txt \
	  'ray>=2.9,<3' 'distributed>=2024.1'
	@touch $@

# Libraries that train with torch; only slow tests and the suite of trainers need them. timm needs
# torchvision, which other libraries import too if they see it, and which fails beside a torch for
# CPUs: both stay in a folder of their own.
$(TRAINERS): constraints.txt | $(TORCH)
	@echo "installing trainers into $(VENV), once ..." >&2
	@export PIP_DISABLE_PIP_VERSION_CHECK=1; pip="$(BIN)/python -m pip install -qq -c constraints.txt"; \
	  $$pip accelerate lightning pillow transformers && \
	  $$pip --upgrade --no-deps --target $(VENV)/timm timm torchvision
	@touch $@

# A browser for the tests of pages; without one, they are skipped.
browser:
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || { \
	  [ "$$(id -u)" = 0 ] && apt-get install -y -qq chromium chromium-driver > /dev/null 2>&1; } || \
	  echo "Chromium cannot be installed: tests of pages are skipped" >&2

$(JAX): benchmarks/testbed/jax-requirements.txt
	@echo "installing JAX into $(JAX_VENV), once ..." >&2
	@$(PYTHON) -m venv --clear $(JAX_VENV)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(JAX_VENV)/bin/python -m pip install -qq --requirement $<
	@touch $@

$(HTA): benchmarks/hta-requirements.txt
	@echo "installing HTA into $(HTA_VENV), once ..." >&2
	@$(PYTHON) -m venv --clear $(HTA_VENV)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(HTA_VENV)/bin/python -m pip install -qq --no-deps --requirement $< \
	  && touch $@ || { rm -rf $(HTA_VENV); echo "HTA cannot be installed: no comparison with it" >&2; }
