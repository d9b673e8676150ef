from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff import SoakReport
from autoconf_launch.autotuner.space import Measurement, Prediction, Record, Trial
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.report.columns import step_parts_document, step_parts_text

PARTS = {"samples": 6.0, "launch": 1.0, "recompute": 0.0, "communication": 2.0, "update": 1.0}
RECORD = Record(
    trial=Trial(
        number=1, name="z0_gas1_tmbspg2", candidate=Candidate(layout=Layout()), space="z0"
    ),
    outcome=Measurement(step_s=(11.0,), samples_per_step=2, world_size=1),
    wall_s=20.0,
    prediction=Prediction(
        peak_bytes=None, step_s=10.0, band=0.3, how="by hand", parts=tuple(PARTS.items())
    ),
)


def line_names(record: Record, soak: SoakReport | None = None) -> list[str]:
    """The lines by what stands before their numbers."""
    text = step_parts_text(record, soak) or ""
    return [line.split("  ")[0] for line in text.splitlines()]


def test_the_measured_step_stands_below_the_predicted_parts() -> None:
    parts = ["samples", "launch floor", "recompute", "exposed communication", "update"]
    assert line_names(RECORD)[1:-2] == parts
    assert line_names(RECORD)[-1] == "measured 11 s, 10 % more"
    assert step_parts_text(replace(RECORD, prediction=None)) is None
    assert RECORD.prediction is not None
    more = (*PARTS.items(), ("bubble", 3.0))
    piped = replace(RECORD, prediction=replace(RECORD.prediction, parts=more, step_s=13.0))
    assert line_names(piped)[3:6] == ["recompute", "bubble", "exposed communication"]


def test_the_document_has_the_parts_by_name() -> None:
    assert step_parts_document(RECORD) == {
        "predicted_step_s": 10.0,
        "predicted_parts_s": PARTS,
        "measured_step_s": 11.0,
        "measured_parts_s": {},
    }


def soak_of(**phases: float) -> SoakReport:
    return SoakReport(
        steps=9,
        memory_share=None,
        refused=(),
        passed=True,
        phases=tuple(phases.items()),
        step_s=10.0,
    )


@pytest.mark.parametrize(
    ("phases", "exchange", "between_s"),
    [
        ({"exchange": 1.0}, ["exposed communication"], 2.0),
        ({"exchange": 0.0}, [], 3.0),
        ({}, [], 3.0),
    ],
)
def test_the_phases_of_the_soak_stand_below_the_prediction(
    phases: dict[str, float], exchange: list[str], between_s: float
) -> None:
    """Time outside all phases is between the steps; no exchange is drawn without a time."""
    soak = soak_of(forward=2.0, backward=4.0, **phases, update=1.0)
    lines = line_names(RECORD, soak)[-5 - len(exchange) :]
    assert lines == ["forward", "backward", *exchange, "update", "between steps", "step"]
    document = step_parts_document(RECORD, soak) or {}
    assert document["measured_parts_s"]["between"] == between_s
