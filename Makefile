# Two commands for a start: `make demo` and `make test`. Needs Python 3.11+, make, git, a registry.
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
STAMPS  := $(VENV)/.stamps
INSTALL := .ci/install $(BIN)/python
WORKERS ?= 4
# Most tests wait for processes more than they compute: more workers than processors end sooner.
PYTEST  := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests start thousands of processes that import the package: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-frontends test-vscode test-kubernetes gpu soak soak-kernel chaos durations messages check format lint types code-types public-types imports schema labextension docs gallery pictures release notebooks bench faults cloud-faults minors deps constraints clean

demo: $(STAMPS)/demo  ## the environment, and the main job in a real kernel
	$(BIN)/python notebooks/execute.py notebooks/01_quickstart.ipynb

test: tools  ## what the tests need, and the tests
	$(PYTEST)

test-all: tools $(STAMPS)/ray $(STAMPS)/frontends  ## every test there is, every fault and every call of AWS that can go wrong
	$(PYTEST) --all

test-frontends: tools  ## JupyterLab 4.4, Notebook 7, nbclassic, papermill, nbconvert, jupyter execute, in environments of their own
	.ci/frontends $(BIN)/uv $(BIN)/python
	@touch $(STAMPS)/frontends
	$(BIN)/python -m pytest --all tests/frontends

test-vscode: tools  ## VS Code with the Jupyter extension, which is built first (10 minutes, once; .ci/vscode says of what)
	.ci/vscode $(BIN)/python
	$(BIN)/python -m pytest --all -n 0 tests/vscode

test-kubernetes: tools  ## pools on a real Kubernetes of this machine, which is built first (15 minutes, once; root, Debian 12)
	.ci/kubernetes
	$(BIN)/python -m pytest --all -n 0 tests/kubernetes

gpu: $(STAMPS)/gpu  ## the tests that need an NVIDIA GPU; where there is none each is skipped, with its reason
	$(BIN)/python -m pytest -m gpu -rs

soak: tools  ## `make soak N=20`: the tests N times in a row, every second time on a machine that is shaken
	$(BIN)/python tests/soak.py $(or $(N),20) $(or $(FROM),1) $(PYTEST)

soak-kernel: tools  ## `make soak-kernel CELLS=10000`: so many mixed cells in one kernel, and what it holds meanwhile
	$(BIN)/python tests/soak_kernel.py $(or $(CELLS),10000)

chaos: tools  ## `make chaos MINUTES=60 JOBS=2 SEED=1`: cells and faults by chance; writes the table
	cd tests && $(abspath $(BIN))/python -m chaos --write --minutes $(or $(MINUTES),60) --jobs $(or $(JOBS),2) --seed $(or $(SEED),1)

durations:  ## keep the last run's durations, which order the files; draws the table in CONTRIBUTING.md
	$(BIN)/python tests/durations.py

messages: $(BIN)/python  ## every message that a person may read, with its place
	@$(BIN)/python tests/messages.py

check: $(STAMPS)/lint $(STAMPS)/docs  ## all that CI asks for
	@$(MAKE) --no-print-directory --jobs 2 lint imports types docs
	@$(MAKE) --no-print-directory test

format: $(STAMPS)/lint
	$(BIN)/ruff format skyward_nb tests notebooks docs
	$(BIN)/ruff check --fix skyward_nb tests notebooks docs

lint: $(STAMPS)/lint
	$(BIN)/ruff format --check skyward_nb tests notebooks docs
	$(BIN)/ruff check skyward_nb tests notebooks docs

types: code-types public-types

code-types: $(STAMPS)/lint
	$(BIN)/basedpyright

public-types: $(STAMPS)/lint
	PATH="$(abspath $(BIN)):$$PATH" basedpyright --verifytypes skyward_nb --ignoreexternal

imports: $(STAMPS)/lint
	$(BIN)/lint-imports

schema: $(STAMPS)/demo  ## the JSON schema of the record for front ends, made from its types
	$(BIN)/python -m skyward_nb.picture.record > skyward_nb/picture/run.schema.json

labextension: $(STAMPS)/test  ## the browser's half of the Lab extension, built of its TypeScript with Node of the system or of PyPI
	.ci/labextension $(BIN)/python

docs: $(STAMPS)/docs  ## the documentation site in build/docs; warnings are errors. `make gallery`: its notebooks with outputs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

pictures: tools  ## the pictures of README and docs, made of README's own cells in JupyterLab
	$(BIN)/python -m pytest tests/lab/test_readme.py::test_the_cells_of_readme_run_and_their_picture_is_kept
	cp build/screenshots/readme-running.png docs/picture.png
	cp build/screenshots/readme-finished.png docs/picture-finished.png

release: $(STAMPS)/test $(STAMPS)/release  ## the wheel and the source archive in dist, checked as an index checks them, and run on each Python found
	rm -rf dist
	$(BIN)/python -m build --installer uv --outdir dist
	$(BIN)/twine check --strict dist/*
	.ci/wheel $(BIN)/python

notebooks: $(STAMPS)/demo  ## executes the notebooks that need this machine alone, for the gallery of `make docs`
	$(BIN)/python notebooks/execute.py notebooks/[0-9]*.ipynb notebooks/scripts.ipynb notebooks/sources.ipynb

gallery: tools notebooks  ## and those on hosts, a Slurm cluster and rented machines, which tests play; then the site
	$(BIN)/python -m pytest --gallery=build tests/notebook/test_ssh_notebook.py::test_runs_to_its_end tests/slurm/test_slurm_notebook.py::test_runs_to_its_end tests/cloud/test_aws_ipynb.py::test_runs_to_its_end
	$(MAKE) docs

bench: build/bench/bin/python  ## the speeds, side by side with the peers, in one run and one environment
	.ci/install $< --torch '.[aws-test,lab-test]' --requirement tests/benchmarks/peers.txt
	cd tests/benchmarks && ../../$< -m pytest -c bench.ini --benchmark-json=../../build/bench.json \
	  --where-time-goes=../../docs/explanation/where-time-goes.svg

faults: $(STAMPS)/test  ## every fault at every moment, and a line cut at every byte; writes the table
	$(BIN)/python -m pytest tests/faults --faults-table=tests/faults/README.md

cloud-faults: tools  ## every call of AWS that goes wrong, an hour and more; goes on where it was ended; writes the table
	$(BIN)/python -m pytest -n 2 tests/cloud/test_leftovers.py --cloud-faults=tests/cloud/README.md

minors:  ## the base package and its tests without frameworks, on every supported minor found
	.ci/minors

deps: build/newest/bin/python  ## the newest releases of all dependencies: what of them still fits
	$(PYTHON) .ci/deps $<

constraints: $(STAMPS)/demo  ## what is installed, compiled anew with hashes; UPGRADE=1 takes the newest releases
	.ci/constraints $(BIN)/uv $(if $(UPGRADE),--upgrade)

clean:
	rm -rf build dist .venv

# ── the environment: made once, renewed when the pins or the package's needs change ─────

.PHONY: tools
tools: $(STAMPS)/test $(STAMPS)/chromium $(STAMPS)/sshd $(STAMPS)/slurm

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, $(PYTHON) is {sys.version.split()[0]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

build/%/bin/python:
	$(PYTHON) -m venv build/$*

$(STAMPS)/demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --torch --lazily '.[demo]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/test: pyproject.toml constraints.txt | $(STAMPS)/demo
	$(INSTALL) --torch '.[demo,test,arrays,frameworks,loops,lab-test,aws-test]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/lint: pyproject.toml constraints.txt | $(STAMPS)/demo
	$(INSTALL) --torch --lazily '.[demo,test,arrays,frameworks,loops,lab-test,aws-test,lint]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/docs $(STAMPS)/release: $(STAMPS)/%: pyproject.toml constraints.txt | $(STAMPS)/demo
	$(INSTALL) --torch --lazily '.[demo,$*]'
	@mkdir -p $(STAMPS) && touch $@

# JAX brings its CUDA libraries by an extra; torch from a registry has them, if it is no build for CPUs alone.
$(STAMPS)/gpu: $(STAMPS)/test
	@if command -v nvidia-smi >/dev/null; then $(INSTALL) '.[gpu]' 'jax[cuda12]' && touch $@; fi

$(STAMPS)/chromium: .ci/chromium | $(BIN)/python
	@.ci/chromium
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/sshd: .ci/sshd | $(BIN)/python
	@.ci/sshd
	@mkdir -p $(STAMPS) && touch $@

# Other front ends, each in an environment of its own: `make test` runs their tests where they are there, and skips them else.
$(STAMPS)/frontends: .ci/frontends pyproject.toml | $(STAMPS)/demo
	.ci/frontends $(BIN)/uv $(BIN)/python
	@mkdir -p $(STAMPS) && touch $@

# Of 280 MB, for tests/ray_pools alone: `make test` runs them where it is there, and skips them with a word else.
$(STAMPS)/ray: .ci/ray tests/benchmarks/peers.txt | $(STAMPS)/demo
	.ci/ray $(BIN)/uv $(BIN)/python
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/slurm: .ci/slurm | $(BIN)/python
	@.ci/slurm
	@mkdir -p $(STAMPS) && touch $@
