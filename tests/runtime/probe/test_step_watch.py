"""What a script sees of its own training under the probe is what it sees without."""

from __future__ import annotations

from typing import Any

import pytest

STEPS = 5


def show(ended: Any) -> list[str]:
    """What each step printed; the last one ends in it."""
    assert ended.steps()[-1:] == [STEPS], ended.errors
    lines: list[str] = ended.output.split("\n")[: STEPS - 1]
    return lines


def test_a_hooked_model_can_be_compiled_to_torchscript(probed: Any) -> None:
    assert set(show(probed("instruments.py", "scripts_its_model"))) == {"(2, 4)"}


def test_a_script_that_counts_flops_has_its_counter_alone_in_every_step(probed: Any) -> None:
    ended = probed("instruments.py", "counts_flops")
    assert set(show(ended)) == {"(128, None)"}
    assert any("FLOPs are not counted" in note for note in ended.result().notes)


def test_tensors_that_a_script_keeps_elsewhere_go_there_in_every_step(probed: Any) -> None:
    assert len(set(show(probed("instruments.py", "keeps_tensors_elsewhere")))) == 1


def test_a_loss_that_the_script_changes_is_reported_as_it_was(probed: Any) -> None:
    ended = probed("instruments.py", "changes_its_loss")
    losses = [record.loss for record in ended.result().steps]
    assert losses == pytest.approx([float(show(ended)[0]) / 1000] * STEPS)


def test_a_model_that_the_script_drops_is_gone(probed: Any) -> None:
    assert probed("instruments.py", "drops_its_model").output.splitlines()[0] == "is gone"


def test_a_compiled_optimizer_step_is_compiled_once_and_counts(probed: Any) -> None:
    assert show(probed("instruments.py", "compiles_the_optimizers_step")) == ["1"] * (STEPS - 1)


def test_nothing_is_compiled_in_timed_steps(probed: Any) -> None:
    first, *timed = show(probed("instruments.py", "calls_its_model_compiled_and_not"))
    assert (first, len(set(timed))) == ("1", 1)
