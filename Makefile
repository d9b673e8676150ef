# make tune: the main job, from nothing.   make test: all fast tests, from nothing.
# make check: what CI runs, in a virtual environment of its own.   make format: fix what can be.
.PHONY: tune test check types lint format links docs test-slow test-parallel test-frameworks test-deepspeed test-gpu test-null-gpu test-cluster test-vllm campaign benchmark benchmark-search plots clean
PYTHON ?= python3
PYTHON312 ?= python3.12
VENV ?= .venv
BIN = $(VENV)/bin
FOLDERS = core autotuner tuning_spaces runtime launcher
READY = $(VENV)/.ready
EXAMPLE = examples/01_pretrain_gpt
WORKERS ?= 2

tune: $(READY)
	$(BIN)/autoconf-launch --autotuning=tune --num_gpus 2 $(EXAMPLE)/train.py --config $(EXAMPLE)/config.json

# Bytecode is kept: hundreds of processes would each compile everything again.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow
test-frameworks: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torchtitan megatron-core triton
	$(BIN)/python -m pytest -m "slow or not slow" tests/end_to_end/frameworks tests/launcher/dialects/test_published_names.py
test-deepspeed: $(READY)
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --constraint constraints.txt deepspeed
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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt ray
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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt matplotlib
	$(BIN)/python benchmarks/cost_model_plots.py

# torch first and pinned: on a machine without GPUs anything else pulls gigabytes of CUDA.
$(READY): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

format: $(READY)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf build site $(VENV)
