from __future__ import annotations

from pathlib import Path

import pytest
import yaml

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import CONF

from .asked import ask_for, train


def test_an_unknown_size_is_recommended_and_said() -> None:
    found = ask_for("search_config=gpt3/unknown_size", "grid=nemo")
    assert found.question.size_b == 12.9
    assert "You can train a 12.9 B model in 10 days on 256 GPUs" in found.notes[-2]


def test_nvidia_s_custom_file_that_is_not_there_is_the_shipped_one() -> None:
    found = ask_for("search_config=llama/llama3_70b", "grid=nemo").question
    assert (found.model.shape.layers, found.global_batch) == (80, 2048)


@pytest.mark.parametrize("layout", ["whole", "few keys"])
def test_samples_are_as_long_as_a_custom_file_says(tmp_path: Path, layout: str) -> None:
    file = tmp_path / "mine.yaml"
    shape = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    whole = {**shape, "ffn_hidden_size": 3072} if layout == "whole" else {}
    model = {**whole, "encoder_seq_length": 4096, "global_batch_size": 64}
    file.write_text(yaml.safe_dump({"model": model}))
    found = ask_for("search_config=gpt3/0.126b", *train(custom_config=file, num_tokens_in_b=10))
    question = found.question
    assert question.sequence == 4096
    assert question.base.get(("trainer", "max_steps")) == int(10e9 / (64 * 4096))
    assert any("samples of 4096 tokens" in note for note in found.notes)


def test_a_length_of_the_command_line_wins_over_a_custom_file_s() -> None:
    words = ("search_config=mixtral/7b", "grid=nemo", *train(seq_length=8192))
    question = ask_for(*words).question
    assert question.sequence == 8192
    assert question.base.get(("model", "encoder_seq_length")) == 8192
    assert question.base.get(("model", "data", "seq_length")) == 8192


def test_a_mistyped_family_in_a_folder_of_one_s_own_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "search_config" / "gtp3" / "5b.yaml"
    own.parent.mkdir(parents=True)
    own.write_text((CONF / "search_config" / "gpt3" / "5b.yaml").read_text())
    (tmp_path / "config.yaml").write_text((CONF / "config.yaml").read_text())
    with pytest.raises(ConfigError, match="did you mean 'gpt3'"):
        ask_for("search_config=gtp3/5b", "--config-dir", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (train(global_batch_size=1024), "model.global_batch_size", 1024),
        (
            ("cluster_type=bcp", "base_results_dir=/r"),
            "model.data.index_mapping_dir",
            "/r/data_index_files",
        ),
        (
            ("wandb.enable=True", "wandb.project=p"),
            "exp_manager.wandb_logger_kwargs.project",
            "p",
        ),
    ],
)
def test_what_is_given_is_in_the_base_configuration(
    words: tuple[str, ...], path: str, value: object
) -> None:
    base = ask_for("search_config=gpt3/5b", "grid=nemo", *words).question.base
    assert base.get(tuple(path.split("."))) == value
