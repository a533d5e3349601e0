# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all setup browser lint clean

demo: setup
	$(BIN)/clove compare --algorithms clove,ifca,fedavg,local --dataset digits --mixing label-skew-1 \
		--rounds 20 --seeds 3 --set learning_rate=0.003

test: setup lint
	$(BIN)/pytest -n 2 -m "not patient" --durations=15 --cov=src/clove/clustering --cov=src/clove/algorithms \
		--cov-report=term:skip-covered --cov-fail-under=95

test-all: setup lint
	$(BIN)/pytest -n 2 --hypothesis-profile=thorough

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
