import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ConfigError, SchedulerConfig
from autoconf_launch.runtime.model import build_schedule, rate_of

OWN = 0.5
KINDS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def config(kind: str, **parameters: object) -> SchedulerConfig:
    needed = {} if kind == "WarmupLR" else {"total_num_steps": 100}
    given = {"warmup_num_steps": 10, **needed, **parameters}
    return SchedulerConfig(kind=kind, parameters=tuple(given.items()))


def rate(kind: str, iteration: int, **parameters: object) -> float:
    return rate_of(config(kind, **parameters))(iteration, OWN)


@pytest.mark.parametrize(
    ("kind", "iteration", "parameters", "expected"),
    [
        pytest.param(
            *("WarmupLR", 5, {"warmup_type": "linear", "warmup_max_lr": 0.2}, 0.1),
            id="linear warm-up is half way in the middle",
        ),
        pytest.param("WarmupLR", 0, {"warmup_min_lr": 0.01}, 0.01, id="least rate at first"),
        pytest.param("WarmupLR", 1_000, {"warmup_max_lr": 0.2}, 0.2, id="stays after warm-up"),
        pytest.param("WarmupDecayLR", 100, {"warmup_min_lr": 0.01}, 0.01, id="decays to least"),
        pytest.param(
            *("WarmupCosineLR", 100, {"cos_min_ratio": 0.1}, 0.1 * OWN),
            id="cosine scales the optimizer's own rate",
        ),
    ],
)
def test_a_schedule_has_its_rate(
    kind: str, iteration: int, parameters: dict[str, object], expected: float
) -> None:
    assert rate(kind, iteration, **parameters) == pytest.approx(expected)


@given(kind=st.sampled_from(KINDS), iteration=st.integers(0, 300))
def test_a_rate_is_never_above_its_most(kind: str, iteration: int) -> None:
    assert 0.0 <= rate(kind, iteration, warmup_min_lr=0.0) <= OWN if kind != KINDS[2] else True


@given(iteration=st.integers(10, 300))
def test_the_cosine_never_rises_after_the_warm_up(iteration: int) -> None:
    assert rate("WarmupCosineLR", iteration + 1) <= rate("WarmupCosineLR", iteration)


def test_the_first_step_runs_at_the_first_rate() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=OWN)
    build_schedule(config("WarmupLR", warmup_min_lr=0.01), optimizer)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_each_advance_sets_the_next_rate() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=OWN)
    schedule = build_schedule(config("WarmupCosineLR", warmup_type="linear"), optimizer)
    assert schedule
    schedule.advance()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(OWN / 10)


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'warmup_num_steps'"):
        rate("WarmupLR", 0, warmup_steps=3)


def test_a_missing_total_is_named() -> None:
    with pytest.raises(ConfigError, match="total_num_steps is missing"):
        rate_of(SchedulerConfig(kind="WarmupDecayLR"))


@pytest.mark.parametrize(
    ("name", "value"), [("warmup_num_steps", "auto"), ("warmup_type", "square")]
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        rate("WarmupLR", 0, **{name: value})
