"""Flags that only a known architecture answers are refused; no script runs here."""

from __future__ import annotations

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.estimates import parse_fit
from autoconf_launch.launcher.first_forward.answers import PiecesQuestion
from autoconf_launch.launcher.first_forward.command import check_pieces

from .made import script

WORK = ("--cluster", "8xA100", "--global-batch", "64")


def check(*own: str) -> None:
    precision = () if "--precision" in own else ("--precision", "fp32")
    request = parse_fit([*WORK, *precision, *own], of_script=True)
    check_pieces(request.training, script(), request)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        *(
            (own, "architecture is known")
            for own in (
                *(("--tp", "2"), ("--pp=4",), ("--offload", "optimizer"), ("--seq", "8")),
                *(("--lora_rank", "4"), ("--recompute", "selective")),
            )
        ),
        (("--precision", "fp8"), "--precision fp8 needs a model"),
    ],
)
def test_what_pieces_cannot_tell_is_refused(own: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(*own)


def test_degrees_of_one_ask_for_nothing() -> None:
    check("--tp", "1", "--pp", "1", "--offload", "none", "--zero", "3", "--recompute", "full")


def test_an_optimizer_flag_outweighs_the_script_s() -> None:
    with_flag = parse_fit([*WORK, "--optimizer", "sgd"], of_script=True).training
    without = parse_fit(WORK, of_script=True).training
    assert PiecesQuestion(script=script(), training=with_flag).optimizer.states == 0
    assert PiecesQuestion(script=script(), training=without).optimizer.states == 2
