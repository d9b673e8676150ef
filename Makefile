# make tune: the main job, from nothing.   make test: all fast tests, from nothing.
# make check: what CI runs, in a virtual environment of its own.   make format: fix what can be.
.PHONY: tune test test-oldest constraints check types lint format links docs test-slow test-parallel test-frameworks test-deepspeed test-gpu test-null-gpu test-cluster test-vllm campaign benchmark benchmark-search plots clean
PYTHON ?= python3
PYTHON310 ?= python3.10
PYTHON312 ?= python3.12
VENV ?= .venv
BIN = $(VENV)/bin
FOLDERS = core autotuner tuning_spaces runtime launcher
INSTALLED = $(VENV)/.installed
READY = $(VENV)/.ready
# uv is several times as fast as pip, if it is there.
ifneq (,$(shell command -v uv))
MAKE_VENV = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL = uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt
endif
EXAMPLE = examples/01_pretrain_gpt
WORKERS ?= 2

tune: $(INSTALLED)
	$(BIN)/autoconf-launch --autotuning=tune --num_gpus 2 $(EXAMPLE)/train.py --config $(EXAMPLE)/config.json

# Bytecode is kept: hundreds of processes would each compile everything again.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow
# The oldest Python and torch: every ZeRO stage against one process, and a tune.
test-oldest:
	$(PYTHON310) -m venv build/oldest
	grep -v '^torch==\|^triton==\|^nvidia-' constraints.txt > build/oldest/constraints.txt
	build/oldest/bin/python -m pip install --quiet --constraint build/oldest/constraints.txt torch==2.9.1 pytest hypothesis transformers --editable .
	PATH="$(CURDIR)/build/oldest/bin:$$PATH" build/oldest/bin/python -m pytest tests/runtime/test_steps_equal_one_process.py tests/runtime/test_zero_knobs.py tests/end_to_end/test_main_job.py
test-frameworks: $(READY)
	$(INSTALL) torchtitan megatron-core triton
	$(BIN)/python -m pytest -m "slow or not slow" tests/end_to_end/frameworks tests/launcher/dialects/test_published_names.py
test-deepspeed: $(READY)
	DS_BUILD_OPS=0 $(INSTALL) deepspeed
	$(BIN)/python -m pytest -m deepspeed
test-parallel: $(READY)
	$(BIN)/python benchmarks/parallel_losses.py
# Hostile files, faults and kills: prints a table, about 10 minutes on two cores.
campaign: $(READY)
	$(BIN)/python -m tests.campaign

# On a machine with a GPU: from the checkout, with the Python that has torch for it.
test-gpu: $(READY)
	$(BIN)/python -m pytest tests/gpu
# Without a GPU: torch with CUDA (6 GB below build/, once) on a GPU that computes nothing.
test-null-gpu:
	PYTHON312=$(PYTHON312) tests/null_gpu/test.sh build/null_gpu
test-cluster: $(READY)
	tests/cluster/install_engines.sh
	$(INSTALL) ray
	$(BIN)/python -m pytest -m cluster
# Real runs of vLLM on the CPU, in an environment of 3.5 GB: 8 minutes to make, 10 to test.
test-vllm: $(READY)
	PYTHON=$(PYTHON) tests/vllm_environment.sh build/vllm
	PATH="$$PATH:$(CURDIR)/build/vllm/bin" $(BIN)/python -m pytest -m vllm

benchmark: $(READY)
	$(BIN)/python benchmarks/main_job.py
	$(BIN)/python benchmarks/plan_speed.py

benchmark-search: $(READY)
	$(BIN)/python benchmarks/search_landscapes.py --write

plots: $(READY)
	$(INSTALL) matplotlib
	$(BIN)/python benchmarks/cost_model_plots.py

# One call for all of it: the pinned torch is resolved together with what needs it.
$(INSTALLED): pyproject.toml setup.py constraints.txt
	$(MAKE_VENV)
	$(INSTALL) --editable .
	@touch $@

$(READY): $(INSTALLED)
	$(INSTALL) --editable '.[dev]'
	@touch $@

check:
	rm -rf build/check
	$(MAKE) VENV=build/check lint types test

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q tests/test_words.py

types: $(READY) links
	$(BIN)/mypy && $(BIN)/mypy tests

links:  # static tools do not run setuptools' import hook; show them the same mapping
	@mkdir -p build/typing/autoconf_launch
	@ln -sfn ../../../api/__init__.py build/typing/autoconf_launch/__init__.py
	@for f in $(FOLDERS); do ln -sfn ../../../$$f build/typing/autoconf_launch/$$f; done
	@ln -sfn ../../../nemo_tools build/typing/autoconf_launch/nemo

docs: $(READY) links
	$(INSTALL) --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

# Pins of every extra for every Python, from the newest releases that fit together.
constraints:
	uv pip compile --universal --python-version 3.10 --all-extras --no-header --no-annotate pyproject.toml

format: $(READY)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf build site $(VENV)
