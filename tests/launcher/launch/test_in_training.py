"""Additions to a launch of an external script."""

from __future__ import annotations

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.dialects import DATALOADER_BATCH_VARIABLE
from autoconf_launch.launcher.launch import in_training
from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.launcher.spelling import Rendered


def render(*environment: tuple[str, str]) -> Rendered:
    return Rendered(config=RawConfig({}), script_args=(), environment=environment)


def test_a_batch_that_our_code_sets_is_set_in_the_training_too() -> None:
    told = dict(in_training(render((DATALOADER_BATCH_VARIABLE, "8"))).environment)
    assert told["PYTHONPATH"].startswith(str(INJECTED))


def test_other_trainings_get_nothing_of_ours() -> None:
    assert in_training(render(("OTHER", "8"))).environment == (("OTHER", "8"),)
