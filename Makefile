# Each target does all of its own set-up: a virtual environment in .venv, made once.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LOCK := requirements/dev.txt
PEERS := .venv/.peers
TRAINERS := .venv/.trainers
VISION := .venv/vision

.PHONY: help demo test test-all compat compat-all chaos check coverage bench gallery what docs exam gpu-check lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Show what a command says only if it fails; then nothing else is done.
quietly = said=$$($(1) 2>&1) || { printf '%s\n' "$$said"; exit 1; }

# With hashes: what is installed is what was locked. torch is not, since its builds differ by platform; all
# that it needs of pure Python is.
$(READY): pyproject.toml constraints.txt $(LOCK)
	@echo "== setting up .venv (torch's CPU build is about 200 MB; a minute or two, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "antifreeze needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(call quietly,$(INSTALL) --require-hashes --no-deps -r $(LOCK))
	@$(call quietly,$(INSTALL) -c constraints.txt torch==2.13.0)
	@$(call quietly,$(INSTALL) --no-deps --no-build-isolation -e .)
	@$(BIN)/python -c 'import antifreeze, pytest, hypothesis, cv2, PIL, libcst'
	@touch $@

demo: $(READY)  ## see a freeze and three faults, and the same scripts finish
	@$(BIN)/python examples/demo/run.py

test: $(READY)  ## run every test
	@echo "== running the tests (a quarter of an hour on two cores)"
	@$(BIN)/python tests/run.py

# torchvision comes as a GPU build, which a CPU's torch cannot load, and Lightning and others import it
# if they see it: so it lies beside, for the tests of those that cannot do without it.
$(TRAINERS): $(READY) pyproject.toml constraints.txt
	@echo "== adding the trainers to .venv (Lightning, transformers, Ray and others: some 300 MB; a few minutes, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[integrations]' 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps timm ultralytics 2>&1 | grep -v '^WARNING: Location' || true
	@rm -rf $(VISION)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --target $(VISION) torchvision 2>&1 | grep -v '^WARNING: Location' || true
	@if $(BIN)/python -c 'import lightning, accelerate, transformers, ignite, ray.train.torch' 2>/dev/null; then touch $@; fi  # else: the tests say who is missing

test-all: $(TRAINERS)  ## run every test, those with real trainers too (Lightning, accelerate, transformers ...)
	@echo "== running all tests (most of an hour on two cores)"
	@$(BIN)/python tests/run.py --all

# The tests that depend on torch, on other versions: each has an environment of its own, not .venv.
COMPAT_FOLDER ?= .compat
COMPAT = $(firstword $(wildcard $(BIN)/python) python3) tests/compat/run.py --folder "$(COMPAT_FOLDER)" \
	$(if $(KEEP),--keep) $(if $(TESTS),--tests "$(TESTS)") $(ARGS)

compat:  ## run what depends on torch on another one: make compat TORCH=2.7.1 PYTHON=python3.13 (KEEP=1, TESTS=...)
	@test -n "$(TORCH)" || { echo 'which torch? make compat TORCH=2.7.1 PYTHON=python3.13'; exit 2; }
	@$(COMPAT) "$(TORCH)@$(PYTHON)"

compat-all:  ## the same for every version of docs/compatibility.md, one after the other (an hour and more)
	@$(COMPAT) --all

chaos: $(READY)  ## random faults against epochs whose content is known, 10 minutes (ARGS="--seed 7 --minutes 2")
	@$(BIN)/python -m tests.chaos $(ARGS)

check: $(READY)  ## format, lint, spelling, strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/codespell
	@! grep -rn '# type: ignore' tests --include='*.py' || { echo 'mypy does not read tests: leave out these comments'; exit 1; }
	@$(BIN)/mypy

# Tests that are about time may fail beside what measures: the lines are counted all the same.
COVERAGE = COVERAGE_FILE=$(CURDIR)/.venv/.coverage/lines $(BIN)/coverage
coverage: $(READY)  ## which lines of src the tests run, in all their processes (ARGS="tests/core tests/sim": only these)
	@rm -rf .venv/.coverage && mkdir .venv/.coverage
	-@$(COVERAGE) run $(if $(ARGS),-m pytest $(ARGS),tests/run.py)
	@$(COVERAGE) combine --quiet
	@$(COVERAGE) report

$(PEERS): $(READY) pyproject.toml constraints.txt
	@echo "== adding the other loaders to .venv (torchdata, SPDL, Grain, and TensorBoard; once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' 2>&1 | grep -v '^WARNING: Location' || true
	@if $(BIN)/python -c 'import torchdata.nodes, spdl.pipeline, grain, tensorboard' 2>/dev/null; then touch $@; fi  # else: the benchmark says who is missing

bench: $(PEERS)  ## measure against torch's loader and others, 25 minutes (ARGS=--quick: 5; ARGS="--only programs": real programs, 5)
	@$(BIN)/python benchmarks/compare.py $(ARGS)

gallery: $(READY)  ## run every scenario through torch's loader and ours
	@$(BIN)/python examples/scenarios/gallery.py

what: $(READY)  ## run every row of README's table through torch's loader and ours (ARGS=--json)
	@$(BIN)/python examples/what_happens/what.py $(ARGS)

docs: $(READY)  ## write docs/states, docs/hangs, docs/rules, docs/crash-matrix.md, docs/compatibility.md and what happens when anew from their tables
	@$(BIN)/python examples/what_happens/what.py --write
	@$(BIN)/python docs/write_states.py
	@$(BIN)/python docs/write_hangs.py
	@$(BIN)/python docs/write_rules.py
	@$(BIN)/python docs/write_matrix.py
	@$(BIN)/python docs/write_compatibility.py

exam: $(READY)  ## run torch's own DataLoader tests on our class: make exam SUITE=test_dataloader.py
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt expecttest dill 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python tests/parity/exam.py $(SUITE)

# With another interpreter, whose torch has a GPU: make gpu-check GPU_PYTHON=~/venv/bin/python
gpu-check: $(if $(GPU_PYTHON),,$(READY))  ## check the loader with this machine's accelerator, a minute or two (GPU_PYTHON=, ARGS=--json)
	@PYTHONPATH=$(CURDIR)/src $(or $(GPU_PYTHON),$(BIN)/python) -m antifreeze platform --gpu $(ARGS)

lock:  ## resolve the packages for development anew, with hashes (ARGS=--upgrade: newest versions; some minutes)
	@$(PYTHON) requirements/lock.py $(ARGS)

clean:  ## remove the environment
	rm -rf .venv
