from pathlib import Path

import torch

from autoconf_launch.runtime.rank.failures import last_words


def caught() -> Exception:
    try:
        raise RuntimeError("the cause")
    except RuntimeError as error:
        return error


def test_what_was_printed_comes_before_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("first\n\nlast printed\n")
    words = last_words(tmp_path, caught())
    assert words[:2] == ("first", "last printed")
    assert words[-1] == "RuntimeError: the cause"


def test_a_long_log_is_read_at_its_end_alone(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 10_000 + "\nlast printed\n")
    assert "last printed" in last_words(tmp_path, caught())


def test_without_a_log_the_traceback_is_left(tmp_path: Path) -> None:
    assert last_words(tmp_path, caught())[0].startswith("Traceback")


def test_what_torch_adds_to_each_error_of_a_gpu_is_left_out(tmp_path: Path) -> None:
    text = "CUDA error: misaligned address\nFor debugging consider passing X=1\n"
    assert last_words(tmp_path, RuntimeError(text)) == (
        "RuntimeError: CUDA error: misaligned address",
    )


def test_a_long_traceback_keeps_the_scripts_own_lines(tmp_path: Path) -> None:
    model: torch.nn.Module = torch.nn.Linear(1, 1)
    for _ in range(9):
        model = torch.nn.Sequential(model)
    try:
        model(None)
    except TypeError as error:
        words = last_words(tmp_path, error)
    assert any("model(None)" in line for line in words)
    assert len(words) < 16


def test_a_call_that_is_under_way_is_part_of_the_traceback(tmp_path: Path) -> None:
    def report() -> tuple[str, ...]:
        return last_words(tmp_path, caught())

    assert any("in report" in line for line in report())
