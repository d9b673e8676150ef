"""The seeds' own command lines on this machine, up to the point where runs would begin."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

pytest.importorskip("hydra")
pytest.importorskip("transformers")

from .verb import Run

LINE = (
    "search_config=gpt3/{size} run_inference_hp_search=False auto_configurator_path={tool} "
    "data_dir={data} base_results_dir={results} "
    "search_config.train_settings.num_nodes={nodes} cluster_type=local"
)
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


def line(folder: Path, size: str = "0.126b", nodes: int = 1, **given: Path) -> list[str]:
    paths = {"tool": folder, "data": folder, "results": folder / "results", **given}
    return shlex.split(LINE.format(size=size, nodes=nodes, **paths))


def refuse(search: Run, code: int, *words: str) -> str:
    done = search(*words)
    assert (done.code, done.is_one_line) == (code, True), done.err
    return done.err


def test_a_data_folder_that_is_not_there_is_named(search: Run, tmp_path: Path) -> None:
    said = refuse(search, 2, *line(tmp_path, data=tmp_path / "the_pile_gpt3"))
    assert f"data_dir: {tmp_path}/the_pile_gpt3 does not exist" in said


def test_a_container_that_is_not_there_is_named(search: Run, tmp_path: Path) -> None:
    words = (*line(tmp_path), f"training_container={tmp_path}/nemo.sqsh")
    assert "nemo.sqsh does not exist" in refuse(search, 2, *words)


def test_a_mount_that_is_not_there_is_named(search: Run, tmp_path: Path) -> None:
    words = (*line(tmp_path), f"container_mounts=[{tmp_path}/raid:/raid]")
    assert "container_mounts" in refuse(search, 2, *words)


@pytest.mark.parametrize("words", [(), ("bignlp_hp_tool_path=tool",)], ids=["nemo", "bignlp"])
def test_what_this_machine_cannot_hold_is_refused_with_what_it_can(
    search: Run, words: tuple[str, ...]
) -> None:
    """``python3 main.py`` means gpt3/5b; 175 billion parameters are too many for any machine."""
    size = "search_config=gpt3/175b"
    said = refuse(search, 3, "cluster_type=local", "run_inference_hp_search=False", size, *words)
    assert "gpt3_175b needs at least" in said
    assert "the largest predefined size that it holds is search_config=gpt3/" in said


def test_a_dry_run_says_it_beside_the_candidates(search: Run, tmp_path: Path) -> None:
    done = search("--dry-run", *line(tmp_path, size="175b"))
    assert done.code == 0
    assert "Note: gpt3_175b needs at least" in done.out


def test_a_refusal_leaves_nothing_behind(search: Run, tmp_path: Path) -> None:
    refuse(search, 3, *line(tmp_path, size="175b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modelsize": 3}, "did you mean 'search_config.train_settings.model_size_in_b'?"),
        ({"limit_search_runs": -1}, "must be a whole number of at least 0"),
        (
            {"gpus_per_node": 3, "tensor_parallel_sizes": "[1]", "pipeline_parallel_sizes": "[1]"},
            "splits a global batch of 256 over 3 ranks",
        ),
        ({"model_size_in_b": 2000}, "supports less than 1105 B parameters"),
        ({"micro_batch_sizes": "[3]"}, "divides the"),
        ({"tensor_parallel_sizes": "[2]", "gpus_per_node": 2}, "the model has no tensor plan"),
        ({"max_minutes_per_run": 0}, "must be a number above 0"),
    ],
)
def test_a_bad_value_is_one_line_before_anything_is_written(
    search: Run, tmp_path: Path, given: dict[str, object], said: str
) -> None:
    words = [f"{TRAIN}.{key}={value}" for key, value in given.items()]
    assert said in refuse(search, 2, *line(tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(search: Run, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    said = refuse(search, 2, *line(tmp_path, size="unknown_size"), *_SMALL)
    assert "cannot be written" in said


def test_a_key_file_that_is_not_there_is_named_before_anything_is_written(
    search: Run, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    words = ("wandb.enable=True", f"wandb.api_key_file={tmp_path}/key")
    said = refuse(search, 2, *line(tmp_path, size="unknown_size"), *_SMALL, *words)
    assert "Weights & Biases key cannot be read" in said
    assert list(tmp_path.iterdir()) == []
