# The two commands: `make demo` runs the main job, `make test` the tests. Both set up .venv first, once.

SHELL := bash
PYTHON ?= python3
RUN := .venv/bin/python -m
INSTALLED := .venv/.installed
FOREIGN := .venv-foreign/.installed
SUITABLE = $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
  { echo 'symlab needs Python 3.11 to 3.13, and "$(PYTHON)" is not: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)' >&2; exit 1; }
# pip's output, less what is of no use here.
BRIEFLY = { grep --line-buffered -oE '(Downloading|Using cached) [^ ]+ \([0-9.]+ [MG]B\)|Installing collected packages' || true; }

# Bytecode is kept, whatever the user's environment says: the tests start some hundreds of Python processes. Each test
# computes on one thread: there is a worker for every core.
ENVIRONMENT := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1
# In CI a test may be skipped only for reasons that are known (tests/skips.py).
STRICT := $(if $(filter true,$(CI)),--strict-skips)
MINUTES ?= 9

.PHONY: demo test test-changed test-all golden durations foreign check codes audit bench clean

demo: $(INSTALLED)
	@.venv/bin/symlab run +exp=allreduce_bf16

# The quick tests: three minutes or so on two cores. tests/README.md says which these are.
test: $(INSTALLED)
	@$(ENVIRONMENT) $(RUN) pytest -q -n auto --dist loadfile --durations=5 $(STRICT) -m 'not gpu and not slow'

# Of all other tests what changed since it passed, and a part that rotates with the commit, in MINUTES=9.
test-changed: $(INSTALLED)
	@$(ENVIRONMENT) $(RUN) tests.selection --minutes $(MINUTES) -- -n auto $(STRICT)

# All tests, and the matrix of each kernel that no proof covers: what has not passed as it is now. Cut it at any time.
test-all: test
	@$(ENVIRONMENT) $(RUN) tests.selection -- -n auto $(STRICT)

# The texts that tests compare with tests/golden/texts.txt, written again: read the diff.
golden: $(INSTALLED)
	@$(ENVIRONMENT) $(RUN) tests.golden -- -n auto --dist loadfile

# How long tests take, which decides what is quick: on a quiet machine, with kernels compiled before.
durations: $(INSTALLED)
	@$(ENVIRONMENT) $(RUN) pytest -q -n auto --dist loadfile --by-marks -m 'not gpu and not slow' --junit-xml .pytest_cache/durations.xml
	@$(RUN) tests.layers .pytest_cache/durations.xml

# Compilers and kernels of others, in an environment of their own, which tests/foreign compiles with: 3.3 GB on disk, some minutes, once.
foreign: $(FOREIGN)

check: $(INSTALLED)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@.venv/bin/lint-imports --no-cache
	@$(RUN) tests.lint
	@$(RUN) tests.size

# Whether kernels compile to the code that kernels/matrix/codes.json says, which the matrix judges proofs by, and writes it: some minutes.
codes: $(INSTALLED)
	@$(RUN) kernels --codes

# All that is published: the seal, tables and figures as the records make them, and each machine's records audited.
audit: $(INSTALLED)
	@$(RUN) reports published --audit

bench: .venv/.bench
	@.venv/bin/python tests/benchmarks/bench_simulator.py
	@.venv/bin/python tests/benchmarks/bench_orders.py
	@.venv/bin/python tests/benchmarks/bench_reports.py

# The stamp is younger than what it was made from: a second run installs nothing.
$(INSTALLED): pyproject.toml constraints.txt
	@$(SUITABLE)
	@.venv/bin/python -c '' 2>/dev/null || { echo 'Making .venv'; $(PYTHON) -m venv --clear .venv; }
	@echo 'Installing the locked versions into .venv (a few minutes, once)'
	@set -o pipefail; $(RUN) pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[dev]' \
	  | $(BRIEFLY)
	@touch $@

$(FOREIGN): tests/foreign/constraints.txt
	@$(SUITABLE)
	@.venv-foreign/bin/python -c '' 2>/dev/null || { echo 'Making .venv-foreign'; $(PYTHON) -m venv --clear .venv-foreign; }
	@echo 'Installing compilers and kernels of others into .venv-foreign (a few minutes, once)'
	@set -o pipefail; .venv-foreign/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-deps -r tests/foreign/constraints.txt \
	  | $(BRIEFLY)
	@cp tests/foreign/constraints.txt $@

.venv/.bench: $(INSTALLED)
	@$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

clean:
	rm -rf .venv .venv-foreign .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
