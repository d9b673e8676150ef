"""Shortcuts from overrides to the inference half of a search."""

from __future__ import annotations

from functools import cache

from autoconf_launch.nemo.inference_search.points import PreparedInference, prepare_inference
from autoconf_launch.nemo.search import prepare_training
from autoconf_launch.nemo.search_flags import parse_search

INFERENCE = "search_config.inference_settings"
RUN, BENCHMARK = f"{INFERENCE}.run", f"{INFERENCE}.benchmark"
ALONE = "run_training_hp_search=False"
SMALL = (
    "search_config=gpt3/unknown_size",
    "cluster_type=local",
    ALONE,
    "search_config.train_settings.model_size_in_b=0.003",
    "search_config.train_settings.vocab_size=500",
    "search_config.train_settings.seq_length=64",
    "search_config.train_settings.gpus_per_node=2",
    f"{RUN}.model_train_name=tiny",
    f"{RUN}.tensor_parallel_sizes=[1,2]",
    f"{RUN}.pipeline_parallel_sizes=[1,3]",
    f"{BENCHMARK}.batch_sizes=[1,2]",
    f"{BENCHMARK}.input_len=8",
    f"{BENCHMARK}.output_len=4",
)


@cache
def ask_for(*overrides: str) -> PreparedInference:
    prepared = prepare_training(parse_search(["--dry-run", *overrides]))
    return prepare_inference(prepared.settings, prepared.question, dry_run=True)
