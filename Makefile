# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A worker keeps to neighbours, which share what was made for them, until the other has none left.
PYTEST := $(BIN)/pytest --dist worksteal
ROOMS := clustering algorithms
# Many tests start Python anew: what it has compiled is to be there the next time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all setup browser lint clean

demo: setup
	$(BIN)/clove compare --algorithms clove,ifca,fedavg,local --dataset digits --mixing label-skew-1 \
		--rounds 20 --seeds 3 --set learning_rate=0.003

# Tracing doubles the time of a test, so what the rooms' own tests cover is measured with them alone.
# Of the others many wait for processes of their own: three workers keep two cores busy.
test: setup lint
	$(PYTEST) -n 2 -m "not patient" --durations=15 $(ROOMS:%=tests/%) $(ROOMS:%=--cov=src/clove/%) \
		--cov-report=term:skip-covered --cov-fail-under=95
	$(PYTEST) -n 3 -m "not patient" --durations=30 $(ROOMS:%=--ignore=tests/%)

test-all: setup lint
	$(PYTEST) -n 2 --hypothesis-profile=thorough

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("clove needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@$(MAKE) --no-print-directory browser
	touch $@

# Pages are tested in a real browser where there is one, or where one can be installed.
browser:
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || \
		{ apt-get update && apt-get install -y chromium; } > /dev/null 2>&1 || \
		echo "no Chromium here, and none could be installed: pages are not tested in a browser"

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
