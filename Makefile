# `make demo` and `make test` work as the first command on a fresh clone: they create .venv and install into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
DEMO := runs/demo/natural runs/demo/sat runs/demo/uiat
# One thread a worker: two test processes on two cores must not wait for each other's threads.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo test test-cpus test-versions test-slow test-faults lint style types types-macos tests format docs notebook constraints clean

help:
	@echo "make demo       train three networks on digits and write the page that compares them (about three minutes)"
	@echo "make test       lint, types and all tests but the slow ones"
	@echo "make test-cpus  the same tests as other CPUs would compute them (four times as long)"
	@echo "make test-versions  numerical tests with the oldest and the newest torch, and other Pythons (many gigabytes)"
	@echo "make test-slow  the slow tests"
	@echo "make test-faults  kills, torn files and full disks by the hundred (docs/reliability.md)"
	@echo "make lint       ruff and mypy, also for macOS"
	@echo "make format     rewrite the sources with ruff"
	@echo "make docs       the documentation as a site in build/site, with the demo's report in it"
	@echo "make notebook   rewrite the notebook of the examples from its script, and execute it"
	@echo "make constraints  rewrite constraints.txt with the newest versions that pyproject.toml allows"
	@echo "make clean      remove the environment, caches and runs"

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# One thread: on so small a network a second one gains little, and waits long where the cores are busy.
demo: export OMP_NUM_THREADS = 1
demo: $(VENV)/.done
	@for run in $(DEMO); do \
		if test -e $$run/config.json; then $(BIN)/uiat train --resume $$run; \
		else $(BIN)/uiat train digits-resnet8-$${run##*/} --out $$run; fi && $(BIN)/uiat evaluate $$run || exit $$?; \
	done
	@$(BIN)/uiat compare $(DEMO)
	@$(BIN)/uiat report $(DEMO) --out runs/demo/report.html
	@echo "Open runs/demo/report.html in a browser; the runs beside it hold configuration, metrics, card and weights."
	@echo "One seed each: it shows what adversarial training does, not which method is better (docs/results.md)."

# mypy has one thread: it runs beside the tests.
test: style
	@$(MAKE) --no-print-directory -j2 types tests

tests: $(VENV)/.done
	$(PYTEST) -m "not slow and not faults"

# Kernels for other CPUs round differently: no test may depend on those of one machine.
test-cpus: $(VENV)/.done
	ATEN_CPU_CAPABILITY=default $(PYTEST) -m "not slow and not faults"
	ATEN_CPU_CAPABILITY=avx2 $(PYTEST) -m "not slow and not faults"
	ONEDNN_MAX_CPU_ISA=SSE41 $(PYTEST) -m "not slow and not faults"
	ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) -m "not slow and not faults"

# Environments are in build/versions; one that is complete is used again.
test-versions:
	$(PYTHON) tools/test_versions.py -n $(WORKERS) --dist worksteal

test-slow: $(VENV)/.done
	$(PYTEST) -m slow

# The folder is given so that the counts of all workers are summed at the end.
test-faults: $(VENV)/.done
	$(PYTEST) -m faults tests/faults tests/distributed tests/engine

lint: style types types-macos

style: $(VENV)/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.done
	$(BIN)/mypy

# macOS lacks some names that Linux has.
types-macos: $(VENV)/.done
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src

format: $(VENV)/.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A warning ends it. The variable turns off the theme's notice of its own future.
docs: $(VENV)/.done runs/demo/report.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html in a browser; it needs no server and no network."

runs/demo/report.html:
	$(MAKE) demo

notebook: $(VENV)/.done
	$(BIN)/python tools/make_notebook.py

# torch is named, not found: where no version is, pip takes the build with CUDA. Inspect the diff, then run the tests.
TORCH ?= 2.13.0
constraints:
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --upgrade setuptools torch==$(TORCH)
	build/constraints/bin/python -m pip install --quiet --no-build-isolation -e '.[dev]'
	{ head -1 constraints.txt; build/constraints/bin/python -m pip freeze --all --exclude-editable --exclude pip | \
		sed 's/^\(torch==[^+]*\)+.*/\1/'; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/constraints

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
