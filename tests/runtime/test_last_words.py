from pathlib import Path

import torch

from autoconf_launch.runtime.rank import last_words


def caught() -> Exception:
    try:
        raise RuntimeError("the cause")
    except RuntimeError as error:
        return error


ASSERTION = "Loss.cu:250: nll: block: [0,0,0], thread: [3,0,0] Assertion `t < n` failed."


def test_what_was_printed_before_is_not_taken_for_the_reason(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("UserWarning: odd\n 30%|### | 3/10\n")
    words = last_words(tmp_path, caught())
    assert (words[0], words[-1]) == (
        "Traceback (most recent call last):",
        "RuntimeError: the cause",
    )


def test_an_assertion_of_a_kernel_comes_before_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 10_000 + f"\n{ASSERTION}\nnoise\n")
    words = last_words(tmp_path, caught())
    assert words[:2] == (ASSERTION, "Traceback (most recent call last):")


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
