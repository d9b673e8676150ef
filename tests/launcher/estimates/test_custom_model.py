"""A model of the tables, changed by a user's file; the verb's tests cover the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.autotuner.sizing import ChosenModel, Family, ModelQuestion, choose_model
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.estimates import custom_model
from autoconf_launch.tuning_spaces import generation_of, shipped_base_config, tables


def of_table(family: str, size_b: float, sequence: int = 2048) -> ChosenModel:
    asked = ModelQuestion(
        family=Family(family),
        size_b=size_b,
        vocabulary=32_000,
        sequence=sequence,
        gpu_memory_gb=80,
    )
    return choose_model(tables(generation_of(asked.family)), asked)


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_whole_file_of_nemo_has_its_own_kind_of_layers() -> None:
    file = shipped_base_config("llama2_7b")
    assert file is not None
    found = custom_model(of_table("llama", 7), file)
    assert found.exact_count == pytest.approx(6.738e9, rel=1e-3)
    assert (found.shape.ffn, found.architecture.kv_heads) == (11008, 32)
    assert found.asked.sequence == 4096


def test_a_few_keys_leave_the_rest_as_it_was(tmp_path: Path) -> None:
    table = of_table("gpt3", 5)
    found = custom_model(table, written(tmp_path, {"model": {"num_layers": 30}}))
    assert found.shape.layers == 30
    assert (found.shape.hidden, found.batch) == (table.shape.hidden, table.batch)
    assert found.asked.sequence == 2048


def test_keys_of_a_recipe_are_read_too(tmp_path: Path) -> None:
    content = {"model": {"config": {"num_query_groups": 4}}, "data": {"seq_length": 8192}}
    found = custom_model(of_table("llama", 8), written(tmp_path, content))
    assert (found.architecture.kv_heads, found.asked.sequence) == (4, 8192)


def test_both_stacks_of_a_t5_are_counted(tmp_path: Path) -> None:
    content = {"model": {stack: {"num_layers": 6} for stack in ("encoder", "decoder")}}
    found = custom_model(of_table("t5", 0.22, 512), written(tmp_path, content))
    assert (found.architecture.layers, found.architecture.encoder_layers) == (6, 6)


def test_another_batch_is_no_longer_a_table_s(tmp_path: Path) -> None:
    table = of_table("gpt3", 5, sequence=3000)
    found = custom_model(table, written(tmp_path, {"model": {"global_batch_size": 96}}))
    assert table.batch.note
    assert (found.batch.global_batch, found.batch.note) == (96, "")


def test_a_number_that_is_none_is_said_with_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, {"model": {"num_layers": 0}})
    with pytest.raises(ConfigError, match=r"mine\.yaml: num_layers is 0"):
        custom_model(of_table("gpt3", 5), file)
