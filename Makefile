# Every target makes .venv by itself and installs into it what the target needs. The files .venv/.made,
# .venv/.base, .venv/.test ... say what is there already, so a second run is quick; a step that was
# interrupted has left no such file and is done again. The package is installed editable: only a change
# of pyproject.toml installs again.

PYTHON ?= python3
BIN := .venv/bin/python
# A user's PIP_* variables and pip.conf apply, so mirrors and CPU-only wheels need no change here.
INSTALL := $(BIN) -m pip install --quiet --disable-pip-version-check --editable
# The tests of a file run in one process, so that what they share is made once.
TWO := -n 2 --dist loadfile

.DEFAULT_GOAL := help
# Two pips must not write to one environment at the same time.
.NOTPARALLEL:
.PHONY: help demo test test-all test-hard fuzz chaos soak lint docs widths pictures coverage versions release-check clean

help:
	@echo "make demo   every method on the embedded model and world, offline, less than a minute"
	@echo "make test   run the tests, offline (make test ARGS='-k prompts -p cpu_times' passes options to pytest)"
	@echo "make test-all  and those that are marked slow: kills, servers, other devices, examples"
	@echo "make test-hard  the tests as other machines run them: old and new processors, threads, busy (an hour and a half)"
	@echo "make fuzz   12,000 damaged and hostile inputs, a minute or two (ARGS='--inputs 100000 --first 12000')"
	@echo "make chaos  100 kills, full and read-only disks, vanishing folders, two writers, clock jumps (ARGS='--first 100')"
	@echo "make soak   100,000 predictions in one process: memory, threads, files, hooks (docs/soak.json, docs/soak.svg)"
	@echo "make lint   check style (ruff), types (mypy), imports and licences; print the size of the house"
	@echo "make docs   build the documentation into site/"
	@echo "make widths  and look at every page in Chromium, on a phone and on a screen"
	@echo "make pictures  draw every image of the documentation again, some minutes (ARGS='--only world')"
	@echo "make coverage  simulate how often intervals hold the truth, an hour of one core (ARGS='--kept FOLDER' continues)"
	@echo "make versions ARGS='lowest --python 3.11'  the tests with other versions: lowest, newest, base, wheel, sdist"
	@echo "make release-check  build, check, install and try what would be published"
	@echo "make clean  remove .venv, site/ and all caches"
	@echo "Each installs what it needs into .venv. Another Python: make test PYTHON=python3.12"

demo: .venv/.base
	HF_HUB_OFFLINE=1 $(BIN) -m fair_tta demo $(ARGS)

test: .venv/.test
	HF_HUB_OFFLINE=1 $(BIN) tools/cpu_seconds.py -m pytest $(TWO) -m "not slow" $(ARGS)

test-all: .venv/.test
	HF_HUB_OFFLINE=1 $(BIN) tools/cpu_seconds.py -m pytest $(TWO) $(ARGS)

# ARGS: names of runs, such as "avx2 busy"; none means all.
test-hard: .venv/.test
	$(BIN) tests/heavy/hard.py $(ARGS)

fuzz: .venv/.test
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN) tests/heavy/fuzz/fuzzing.py $(ARGS)

chaos: .venv/.test
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN) tests/heavy/chaos/chaos.py $(ARGS)

soak: .venv/.base
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN) benchmarks/soak.py $(ARGS)

lint: .venv/.lint
	$(BIN) -m ruff check
	$(BIN) -m ruff format --check
	$(BIN) -m mypy
	.venv/bin/lint-imports --no-cache --no-logo
	$(BIN) tools/licences.py
	$(BIN) tools/readability.py --check
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN) tools/house.py

docs: .venv/.docs
	$(BIN) -m mkdocs build --strict --quiet

# Says so and does nothing where Chromium is not installed.
widths: docs
	$(BIN) tools/page_widths.py $(ARGS)

pictures: .venv/.docs
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN) tools/pictures.py $(ARGS)

coverage: .venv/.base
	OMP_NUM_THREADS=1 $(BIN) benchmarks/coverage.py $(ARGS)
	OMP_NUM_THREADS=1 $(BIN) benchmarks/perceived_coverage.py

versions: .venv/.release
	$(BIN) tools/versions.py $(ARGS)

release-check: .venv/.release
	$(BIN) tools/release_check.py

clean:
	rm -rf .venv .hard site dist build sbom.cdx.json .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples -name __pycache__ -prune -exec rm -rf {} +

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fair-tta needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": try make PYTHON=python3.12")'
	@echo "making the virtual environment .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.base: .venv/.made pyproject.toml
	@echo "installing fair-tta and its dependencies into .venv (minutes the first time: PyTorch is large)"
	@$(INSTALL) .
	@touch $@

# The test environment has what its users have, and more; likewise the two others.
.venv/.test .venv/.lint .venv/.docs .venv/.release: .venv/.base
	@echo "installing the tools of 'make $(subst .venv/.,,$@)' into .venv"
	@$(INSTALL) '.[$(subst .venv/.,,$@)]'
	@touch $@
