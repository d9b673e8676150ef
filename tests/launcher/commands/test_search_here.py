"""The seeds' own command lines on this machine, up to the point where runs would begin."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("hydra")
pytest.importorskip("transformers")

from .verb import Run


def line(folder: Path, size: str = "0.126b", nodes: int = 1) -> list[str]:
    return [
        *(f"search_config=gpt3/{size}", "run_inference_hp_search=False", "cluster_type=local"),
        *(f"auto_configurator_path={folder}", f"data_dir={folder}"),
        *(f"base_results_dir={folder / 'results'}", f"{TRAIN}.num_nodes={nodes}"),
    ]


TRAIN = "search_config.train_settings"
_SMALL = tuple(
    f"{TRAIN}.{key}={value}"
    for key, value in {
        "model_size_in_b": 0.001,
        "vocab_size": 512,
        "seq_length": 32,
        "global_batch_size": 8,
        "gpus_per_node": 2,
    }.items()
)


@pytest.mark.parametrize("words", [(), ("bignlp_hp_tool_path=tool",)], ids=["nemo", "bignlp"])
def test_what_this_machine_cannot_hold_is_refused_with_what_it_can(
    search: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """``python3 main.py`` means gpt3/5b; 175 billion parameters are too many for any machine."""
    large = [word for word in line(tmp_path, size="175b") if "auto_configurator" not in word]
    done = search(*large, *words)
    assert (done.code, done.is_one_line) == (3, True), done.err
    assert "gpt3_175b needs at least" in done.err
    assert "the largest predefined size that it holds is search_config=gpt3/" in done.err
    assert list(tmp_path.iterdir()) == []
    dry = search("--dry-run", *large, *words)
    assert (dry.code, "Note: gpt3_175b needs at least" in dry.out) == (0, True)


def test_what_cannot_be_written_or_read_is_named_before_anything_is_written(
    search: Run, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    small = (*line(tmp_path, size="unknown_size"), *_SMALL)
    key = search(*small, "wandb.enable=True", f"wandb.api_key_file={tmp_path}/key")
    assert (key.code, key.is_one_line) == (2, True)
    assert "Weights & Biases key cannot be read" in key.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "results").write_text("a file")
    done = search(*small)
    assert (done.code, done.is_one_line) == (2, True)
    assert "cannot be written" in done.err
