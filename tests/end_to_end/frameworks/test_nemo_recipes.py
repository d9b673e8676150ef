"""Candidates as recipes of the real NeMo and NeMo-Run; skipped where they are not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.nemo.configurator import AutoConfigurator
from autoconf_launch.nemo.recipes import generate_configs

pytestmark = pytest.mark.slow
WHEELS = "nemo is not installed: pip install nemo_toolkit[llm]==2.7.3 nemo_run"
llm: Any = pytest.importorskip("nemo.collections.llm", reason=WHEELS)
run: Any = pytest.importorskip("nemo_run", reason=WHEELS)
fiddle: Any = pytest.importorskip("fiddle")


def build_parts(recipe: Any) -> None:
    """All but what needs Transformer Engine and a GPU."""
    for part in (recipe.trainer.strategy, recipe.trainer.plugins, recipe.optim, recipe.log):
        fiddle.build(part)


@pytest.mark.parametrize("data", [None, ["0.3", "/data/a", "0.7", "/data/b"]])
def test_a_recipe_of_nemo_has_candidates_that_nemo_builds(data: Any, tmp_path: Path) -> None:
    given = llm.llama3_8b.pretrain_recipe(num_nodes=4, num_gpus_per_node=8, name="mine")
    runner = AutoConfigurator(given, tmp_path, data_paths=data, limit_search_runs=6)
    base, candidates = generate_configs(runner)
    for one in (base, *candidates.values()):
        assert isinstance(one, run.Partial)
        kind = llm.MockDataModule if data is None else llm.PreTrainingDataModule
        assert one.data.__fn_or_cls__ is kind
        build_parts(one)
    assert {one.trainer.max_steps for one in candidates.values()} == {50}


def test_a_name_has_recipes_with_the_given_data_and_tokenizer(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.model"
    tokenizer.touch()
    runner = AutoConfigurator(
        model="llama3-8b",
        num_nodes=4,
        seq_length=8192,
        path_to_logs=tmp_path,
        data_paths="/data/a",
        tokenizer_path=tokenizer,
        limit_search_runs=4,
    )
    _, candidates = generate_configs(runner)
    for name, one in candidates.items():
        assert isinstance(one, run.Partial)
        assert one.data.paths == "/data/a"
        assert one.data.tokenizer.model_path == str(tokenizer)
        assert one.log.log_dir == str(tmp_path / name)
        build_parts(one)
