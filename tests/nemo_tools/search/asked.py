"""Shortcuts from overrides to the parts of a search."""

from __future__ import annotations

from functools import cache

from autoconf_launch.nemo.search import Prepared, prepare_training
from autoconf_launch.nemo.search_flags import parse_search

LOCAL = "cluster_type=local"
SMALL = (
    "search_config=gpt3/unknown_size",
    LOCAL,
    "run_inference_hp_search=False",
    "search_config.train_settings.model_size_in_b=0.001",
    "search_config.train_settings.vocab_size=512",
    "search_config.train_settings.seq_length=32",
    "search_config.train_settings.global_batch_size=8",
    "search_config.train_settings.gpus_per_node=2",
    "search_config.train_settings.num_tokens_in_b=0.01",
)


def train(**values: object) -> tuple[str, ...]:
    return tuple(f"search_config.train_settings.{key}={value}" for key, value in values.items())


@cache
def ask_for(*overrides: str) -> Prepared:
    return prepare_training(parse_search(["--dry-run", *overrides]))
