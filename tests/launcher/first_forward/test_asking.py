"""Flags that only a known architecture answers are refused; no script runs here."""

from __future__ import annotations

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.estimates import parse_fit
from autoconf_launch.launcher.first_forward.answers import PiecesQuestion
from autoconf_launch.launcher.first_forward.command import check_pieces

from .made import script

WORK = ("--cluster", "8xA100", "--global-batch", "64", "--precision", "fp32")


def check(*own: str) -> None:
    request = parse_fit([*WORK, *own], of_script=True)
    check_pieces(request.training, script(), request)


@pytest.mark.parametrize(
    "own",
    [
        ("--tp", "2"),
        ("--pp=4",),
        ("--offload", "optimizer"),
        ("--seq", "8"),
        ("--lora_rank", "4"),
        ("--recompute", "selective"),
    ],
)
def test_what_pieces_cannot_tell_is_refused(own: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="architecture is known"):
        check(*own)


def test_degrees_of_one_ask_for_nothing() -> None:
    check("--tp", "1", "--pp", "1", "--offload", "none", "--zero", "3", "--recompute", "full")


def test_an_optimizer_flag_outweighs_the_script_s() -> None:
    with_flag = parse_fit([*WORK, "--optimizer", "sgd"], of_script=True).training
    without = parse_fit(WORK, of_script=True).training
    assert PiecesQuestion(script=script(), training=with_flag).optimizer.states == 0
    assert PiecesQuestion(script=script(), training=without).optimizer.states == 2


def test_a_precision_that_our_runtime_has_not_is_refused() -> None:
    words = [word if word != "fp32" else "fp8" for word in WORK]
    request = parse_fit(words, of_script=True)
    with pytest.raises(ConfigError, match="--precision fp8 needs a model"):
        check_pieces(request.training, script(), request)
