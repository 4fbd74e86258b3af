# Everything a fresh machine needs is Python 3.11 or newer, bash and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Marks of what is installed: the program with its dependencies, and also the development tools.
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
# How many tests run at once: three times the number of processors, because tests often wait.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(3 * (os.cpu_count() or 1))')
# Bash scripts: those that the daemon runs, and those of the project itself.
SCRIPTS := $(wildcard daemon/shelld/*/*.bash) .ci/run
CLIENTS := tests/third_party/node_modules/.ready

.DEFAULT_GOAL := help
.PHONY: help demo clients docs exchanges picture sync package test test-slow quick test-long check lint fix types bench bench-peers bench-parts \
	soak fuzz faults mutants clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

$(RUNTIME): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("shelld needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Dependency groups need a newer pip than some versions of Python bring.
$(READY): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(CLIENTS): $(READY) tests/third_party/package.json
	$(BIN)/python -m pip install --quiet --group clients
	cd tests/third_party && PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --ignore-scripts \
		--no-package-lock --no-audit --no-fund
	@touch $@

clients: $(CLIENTS) ## Install third-party clients, for the tests that drive the daemon with them

demo: $(RUNTIME) ## Run a short session with a real daemon
	@$(BIN)/python examples/demo.py

docs: $(READY) ## Write the pages of docs/ that are made from the code, and build the site
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs . build/site

exchanges: $(READY) ## Record the exchanges that docs/protocol.md shows
	$(BIN)/python docs/record.py

picture: $(READY) ## Record the demo as docs/demo.svg
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/picture.py

sync: $(READY) ## Make what is made from `AsyncClient` and the protocol: `Client`, the npm package's types
	$(BIN)/python client/make_sync.py

# The tests start hundreds of daemons and several workers: let Python keep its compiled modules.
export PYTHONDONTWRITEBYTECODE :=

# What pytest runs: most tests, or all of a path (T=tests/guard, T=tests/e2e/test_bash.py::test_name).
T ?=

test: $(READY) ## Run most tests, or all tests of a path: make test T=tests/guard
	$(BIN)/python -m pytest $(if $(T),-m 'not long' $(T),-n $(WORKERS) --dist worksteal)

test-slow: $(READY) ## Run the tests that take seconds each
	$(BIN)/python -m pytest -m 'slow and not long' -n $(WORKERS) --dist worksteal

# Rooms to check. By default, those in which files differ from the last commit.
ROOM ?=

quick: $(READY) ## Check what you have changed, in seconds: style, types, the tests of its room
	@$(MAKE) --no-print-directory lint
	$(BIN)/mypy
	paths=$$($(BIN)/python tests/helpers/rooms.py $(ROOM)) && \
		$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $$paths

# The tests that `make package` runs against the package that it has built.
PACKAGE_TESTS ?= tests

package: $(READY) ## Build sdist and wheel, install the wheel, run the tests of the sdist against it
	rm -rf dist build/package
	$(BIN)/python -m pip install --quiet --group package
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(PYTHON) -m venv build/package/venv
	build/package/venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	tar -xzf dist/shelld-*.tar.gz -C build/package
	cd build/package/shelld-* && ../venv/bin/python -m pip install --quiet \
		$(CURDIR)/dist/shelld-*.whl --group dev
	cd build/package/shelld-* && ../venv/bin/python -m pytest -o pythonpath="tests tests/helpers benchmarks" \
		-n $(WORKERS) --dist worksteal $(PACKAGE_TESTS)

test-long: $(READY) ## Run the tests that take minutes
	$(BIN)/python -m pytest -m long --timeout 1800

lint: $(READY) ## Check style
	$(BIN)/ruff check . || { echo 'run: make fix'; exit 1; }
	$(BIN)/ruff format --check . || { echo 'run: make fix'; exit 1; }
	$(BIN)/shellcheck $(SCRIPTS)
	for script in $(SCRIPTS); do bash -n $$script || exit; done
	@! git grep -nE '^(<{7}|>{7}) ' 2> /dev/null || { echo 'resolve these conflicts'; exit 1; }

fix: $(READY) ## Mend what `make lint` complains about, as far as a program can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY) ## Check types with mypy and pyright
	$(BIN)/mypy
	$(BIN)/pyright

check: lint types test test-slow ## Lint, types and tests: what a change must pass

bench: $(READY) ## Compare shelld with subprocess, asyncio and anyio
	PYTHONPATH=benchmarks $(BIN)/python -m compare --output build/benchmarks.json

bench-peers: $(READY) ## Compare shelld with peers from PyPI and npm, too; write the documents' figures
	$(BIN)/python -m pip install --quiet --group plot
	PYTHONPATH=benchmarks $(BIN)/python -m compare --peers --output benchmarks/results.json
	PYTHONPATH=benchmarks $(BIN)/python -m compare.report
	PYTHONPATH=benchmarks $(BIN)/python -m compare.plot

bench-parts: $(READY) ## Measure the parts, one by one
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/containment.py
	$(BIN)/python benchmarks/output.py
	$(BIN)/python benchmarks/sessions.py
	$(BIN)/python benchmarks/concurrency.py
	$(BIN)/python benchmarks/client.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/terminals.py
	$(BIN)/python benchmarks/sandbox.py
	PYTHONPATH=tests/helpers $(BIN)/python benchmarks/prompts.py
	$(BIN)/python benchmarks/waits.py
	$(BIN)/python benchmarks/events.py
	$(BIN)/python benchmarks/attach.py
	$(BIN)/python benchmarks/targets.py
	PYTHONPATH=tests/helpers $(BIN)/python benchmarks/bootstrap.py
	$(BIN)/python benchmarks/guard.py

soak: $(READY) ## Make 100,000 calls of all kinds, and check all the time what they leave behind
	PYTHONPATH=tests/helpers $(BIN)/python -m soak

# Seconds for each target.
FUZZ_S ?= 60

fuzz: $(READY) ## Look for failing inputs, a minute per target, and keep the new inputs
	$(BIN)/python -m pip install --quiet --group fuzz
	@for target in messages text_pipeline guard store; do \
		mkdir -p .fuzz/$$target; \
		echo "$$target"; \
		PYTHONPATH=tests:tests/helpers $(BIN)/python -m fuzz.run $$target -max_total_time=$(FUZZ_S) \
			-max_len=600 -verbosity=0 -print_final_stats=1 .fuzz/$$target || exit; \
	done

# Try only points whose text contains this: a file, a line (serve.py:210), a system call, "keeper".
ONLY ?=

faults: $(READY) ## Make each line and system call of the daemon fail, one at a time
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m fault_injection --only '$(ONLY)'

mutants: $(READY) ## Change the pure parts in small ways, and see which changes no test notices
	$(BIN)/python -m pip install --quiet --group mutants
	rm -rf build/mutants
	mkdir -p build/mutants/src
	cp -r daemon/shelld protocol/shelld_protocol client/shelld_client build/mutants/src
	cp -r tests pyproject.toml build/mutants
	cd build/mutants && $(CURDIR)/$(BIN)/mutmut run && $(CURDIR)/$(BIN)/mutmut results

clean: ## Remove the virtual environment and all caches
	rm -rf $(VENV) tests/third_party/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .fuzz build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
