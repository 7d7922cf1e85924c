# Two commands for a start: `make demo` and `make test`. Needs Python 3.11+, make, git, a registry.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
STAMPS := $(VENV)/.stamps

# Tests start thousands of processes that import the package: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check format lint types imports schema notebooks bench faults cloud-faults minors clean

demo: $(STAMPS)/demo  ## the environment, and the main job in a real kernel
	$(BIN)/python notebooks/execute.py notebooks/01_quickstart.ipynb

test: $(STAMPS)/test $(STAMPS)/chromium $(STAMPS)/sshd  ## what the tests need, and the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: lint types imports test  ## all that CI asks for; the notebooks are run by the tests

format: $(STAMPS)/lint
	$(BIN)/ruff format skyward_nb tests notebooks
	$(BIN)/ruff check --fix skyward_nb tests notebooks

lint: $(STAMPS)/lint
	$(BIN)/ruff format --check skyward_nb tests notebooks
	$(BIN)/ruff check skyward_nb tests notebooks

types: $(STAMPS)/lint
	$(BIN)/basedpyright
	PATH="$(abspath $(BIN)):$$PATH" basedpyright --verifytypes skyward_nb --ignoreexternal

imports: $(STAMPS)/lint
	$(BIN)/lint-imports

schema: $(STAMPS)/demo  ## the JSON schema of the record for front ends, made from its types
	$(BIN)/python -m skyward_nb.picture.record > skyward_nb/picture/run.schema.json

notebooks: $(STAMPS)/demo
	$(BIN)/python notebooks/execute.py notebooks/[0-9]*.ipynb

bench: $(BIN)/python  ## the speeds, side by side with the peers, in one run and one environment
	test -x build/bench/bin/python || $(PYTHON) -m venv build/bench
	build/bench/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --requirement tests/benchmarks/peers.txt --editable '.[aws-test]'
	cd tests/benchmarks && ../../build/bench/bin/python -m pytest -c bench.ini --benchmark-json=../../build/bench.json

faults: $(STAMPS)/test  ## every fault at every moment, and a line cut at every byte; writes the table
	$(BIN)/python -m pytest tests/faults --faults-table=tests/faults/README.md

cloud-faults: $(STAMPS)/test $(STAMPS)/sshd  ## every call of AWS that comes to grief; writes the table
	$(BIN)/python -m pytest -n 2 tests/cloud/test_leftovers.py --cloud-faults=tests/cloud/README.md

minors:  ## the base package and its tests without frameworks, on every supported minor found
	.ci/minors

clean:
	rm -rf build dist .venv

# ── the environment: made once, renewed when the pins or the package's needs change ─────

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, $(PYTHON) is {sys.version.split()[0]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/test: pyproject.toml constraints.txt | $(STAMPS)/demo
	$(PIP) --editable '.[demo,test,arrays,frameworks,loops,lab-test,aws-test]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/lint: pyproject.toml constraints.txt | $(STAMPS)/demo
	$(PIP) --editable '.[demo,test,arrays,frameworks,loops,lab-test,aws-test,lint]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/chromium: .ci/chromium | $(BIN)/python
	@.ci/chromium
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/sshd: .ci/sshd | $(BIN)/python
	@.ci/sshd
	@mkdir -p $(STAMPS) && touch $@
