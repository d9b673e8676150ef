from dataclasses import replace

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


def test_the_measured_step_stands_below_the_predicted_parts() -> None:
    lines = (step_parts_text(RECORD) or "").splitlines()
    assert [line.split("  ")[0] for line in lines[1:-2]] == [
        "samples",
        "launch floor",
        "recompute",
        "exposed communication",
        "update",
    ]
    assert lines[-1] == "measured 11 s, 10 % more"


def test_a_pipeline_has_a_bubble_among_its_parts() -> None:
    assert RECORD.prediction is not None
    parts = (*PARTS.items(), ("bubble", 3.0))
    piped = replace(RECORD, prediction=replace(RECORD.prediction, parts=parts, step_s=13.0))
    lines = (step_parts_text(piped) or "").splitlines()
    assert [line.split("  ")[0] for line in lines[3:6]] == [
        "recompute",
        "bubble",
        "exposed communication",
    ]
    assert "13" in lines[-2]


def test_the_document_has_the_parts_by_name() -> None:
    assert step_parts_document(RECORD) == {
        "predicted_step_s": 10.0,
        "predicted_parts_s": PARTS,
        "measured_step_s": 11.0,
        "measured_parts_s": {},
    }


def test_without_a_prediction_nothing_is_drawn() -> None:
    assert step_parts_text(replace(RECORD, prediction=None)) is None


def soak_of(**phases: float) -> SoakReport:
    return SoakReport(
        steps=9,
        memory_share=None,
        refused=(),
        passed=True,
        phases=tuple(phases.items()),
        step_s=10.0,
    )


def test_the_phases_of_the_soak_stand_below_the_prediction() -> None:
    soak = soak_of(forward=2.0, backward=4.0, exchange=1.0, update=1.0)
    lines = (step_parts_text(RECORD, soak) or "").splitlines()
    assert [line.split("  ")[0] for line in lines[-6:]] == [
        "forward",
        "backward",
        "exposed communication",
        "update",
        "between steps",
        "step",
    ]


def test_what_no_phase_explains_is_between_the_steps() -> None:
    document = step_parts_document(RECORD, soak_of(forward=2.0, backward=4.0, update=1.0)) or {}
    assert document["measured_parts_s"]["between"] == 3.0


def test_an_exchange_that_could_not_be_told_apart_is_not_drawn() -> None:
    soak = soak_of(forward=2.0, backward=4.0, exchange=0.0, update=1.0)
    assert (
        "exposed communication"
        not in (step_parts_text(RECORD, soak) or "").split("verification run")[1]
    )
