from __future__ import annotations

import pytest

from autoconf_launch.launcher.first_forward import TracedScript

from .made import GB, WEIGHTS, script


@pytest.mark.parametrize(
    ("optimizer", "state_bytes", "name", "values"),
    [
        ("AdamW", 8 * WEIGHTS, "adamw", 2),
        ("SGD", 4 * WEIGHTS, "momentum", 1),
        ("SGD", 0, "sgd", 0),
        ("Lion", 4 * WEIGHTS, "lion", 1),
        ("Shampoo", 20 * WEIGHTS, "adamw", 5),
        ("SGD", None, "sgd", 0),
        ("Adam", None, "adam", 2),
        (None, None, "adamw", 2),
    ],
)
def test_an_optimizer_is_known_by_what_it_keeps_else_by_its_name(
    optimizer: str | None, state_bytes: int | None, name: str, values: int
) -> None:
    one = script(optimizer=optimizer, state_bytes=state_bytes)
    assert (one.optimizer, one.states) == (name, values)


def test_peaks_have_the_optimizer_s_state() -> None:
    def peak(one: TracedScript) -> int:
        return max(peak.peak_bytes for peak in one.spec.traced_peaks)

    assert peak(script()) - peak(script(state_bytes=0, optimizer="SGD")) == 2 * GB
