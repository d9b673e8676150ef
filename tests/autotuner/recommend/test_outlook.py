"""Our planner's days and costs, with their assumptions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.recommend.goodput import WHY, Goodput, changed, sensitivities
from autoconf_launch.autotuner.recommend.outlook import Outlook, Rate, outlook, size_for_days
from autoconf_launch.autotuner.recommend.throughput import Achieved, Machines, Training, achieved
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.clusters import usable_bytes
from autoconf_launch.tuning_spaces.machines import machine

from .expected import model

_A100 = "A100-SXM-80GB"


def machines(nodes: int) -> Machines:
    return Machines(nodes=nodes, machine=machine(_A100), memory_bytes=usable_bytes(_A100))


def gpt(nodes: int, size_b: float = 5, *, flash: bool = True) -> Achieved | None:
    chosen = model("gpt3", size_b)
    training = Training(
        architecture=chosen.architecture, sequence=2048, global_batch=2048, flash=flash
    )
    return achieved(training, machines(nodes), chosen.active_count)


def looked(usd: float | None = 3.0) -> Outlook:
    done = gpt(16)
    assert done is not None
    return outlook(
        done, 300, machines(16), Goodput(), Rate(usd_per_gpu_hour=usd, source="as given")
    )


def test_gpt3_5b_on_128_a100_is_near_the_published_speed() -> None:
    """5152 tokens/s of each GPU, NeMo-Framework-Launcher README 23.03, before flash attention."""
    done = gpt(16, flash=False)
    assert done is not None
    assert done.tokens_per_s / 128 == pytest.approx(5152, rel=0.12)


def test_gpt3_175b_on_1024_a100_is_above_the_published_speed() -> None:
    """107.1 tokens/s of each GPU, same source: of a layout that is slower than the one found."""
    done = gpt(128, 175, flash=False)
    assert done is not None
    assert 107.1 < done.tokens_per_s / 1024 < 1.4 * 107.1
    assert done.layout.world_size == 1024


def test_a_batch_that_no_layout_has_is_taken_near_and_told() -> None:
    done = gpt(20)
    assert done is not None
    assert done.is_batch_changed
    assert done.layout.global_batch == pytest.approx(2048, rel=0.1)


def test_what_does_not_fit_has_no_answer() -> None:
    assert gpt(1, 175) is None


def test_the_days_lie_in_their_band_and_above_those_of_steps() -> None:
    found = looked()
    assert found.days_low < found.days < found.days_high
    assert found.step_days < found.days


def test_money_is_days_by_price() -> None:
    found = looked()
    assert found.usd == pytest.approx(found.days * 24 * 128 * 3.0)
    assert looked(None).usd is None


def test_each_assumption_has_its_sensitivity_and_a_reason() -> None:
    found = sensitivities(Goodput(), 1024, 10.0)
    assert {one.name for one in found} == set(WHY)
    moved = [abs(one.days_at_double - one.days_at_half) for one in found]
    assert moved == sorted(moved, reverse=True)


@given(st.integers(1, 1 << 20))
def test_goodput_is_a_share(gpus: int) -> None:
    assert 0 < Goodput().share(gpus) < 1


@given(st.integers(1, 1 << 19))
def test_more_gpus_lose_more(gpus: int) -> None:
    assert Goodput().share(2 * gpus) < Goodput().share(gpus)


def test_without_losses_nothing_is_lost() -> None:
    none = replace(Goodput(), checkpoint_s=0.0, evaluation_share=0.0, other_share=0.0)
    assert replace(none, gpu_hours_between_failures=1e12).share(1) == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "value"), [("restart", 1.0), ("other_share", 2.0)])
def test_a_wrong_assumption_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match="Assumption"):
        changed(Goodput(), name, value)


@given(st.floats(0.1, 100), st.floats(0.5, 50))
def test_the_size_for_some_days_takes_nearly_those(start: float, days: float) -> None:
    size = size_for_days(start, days, lambda size_b: 0.7 * size_b)
    assert size is not None
    assert 0.7 * size <= days + 0.01
    assert 0.7 * size == pytest.approx(days, rel=0.06, abs=0.02)
