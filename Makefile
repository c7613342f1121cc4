# `make demo` runs the main job, `make test` the checks, `make test-full` the slow checks too.
# Each sets everything up in .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETTINGS := pyproject.toml constraints.txt

PYTEST := $(BIN)/python -m pytest -q --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test test-full test-gpu lint bench bench-gpu docs release-check clean

setup: .venv/.installed

.venv/.installed: $(SETTINGS) scripts/setup.sh scripts/install_torch.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: setup
	@$(BIN)/sentence-experts demo

lint: setup
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/mypy

# The test runner comes last, so that its summary is the last line.
test: setup lint
	$(PYTEST) -m "not slow"

# Also the tests marked `slow`.
test-full: setup lint
	$(PYTEST)

# The tests of a GPU, which the others hide from torch.
test-gpu: setup
	CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} $(BIN)/python -m pytest -q tests/test_on_a_gpu.py

bench: setup
	for each in encode mixed_batch training_step memory corpus_import co_citation; do $(BIN)/python benchmarks/$$each.py || exit 1; done

# What needs a GPU; without one it says so and exits with 2.
bench-gpu: setup
	@$(BIN)/python benchmarks/gpu.py

# The documentation as a website in site/; a warning is an error.
ZENSICAL ?= $(BIN)/zensical
docs: setup
	$(BIN)/python scripts/write_site.py
	$(ZENSICAL) build --clean --strict

release-check:
	PYTHON="$(PYTHON)" sh scripts/release_check.sh

clean:
	rm -rf .venv demo site dist
