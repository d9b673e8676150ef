"""A tune in which nearly every candidate fails in a different way, on the real process tree."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from .conftest import Place, Tune, wait_until

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "scripts" / "faulty.py"
CONFIG = {
    "train_micro_batch_size_per_gpu": list(range(1, 13)),
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 0},
    "autotuning": {"enabled": True, "tuner_type": "gridsearch", "tuner_early_stopping": 50},
}
TIMEOUT_S, STALL_S = 15.0, 3.0


@pytest.fixture(scope="module")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Tune:
    place = Place(tmp_path_factory.mktemp("faults"), uuid.uuid4().hex)
    config = place.write_config(CONFIG)
    process = place.start(
        "--autotuning=tune",
        "--num_gpus=2",
        "--allow-global-batch-change",
        "--good-enough=0%",
        f"--trial-timeout={TIMEOUT_S}",
        f"--stall-timeout={STALL_S}",
        str(SCRIPT),
        f"--config={config}",
    )
    output, _ = process.communicate(timeout=300)
    by_size = {int(line["name"].rpartition("tmbspg")[2]): line for line in place.journal("name")}
    return Tune(place, process.returncode, output, by_size)


def test_the_tune_goes_on_after_every_fault(tune: Tune) -> None:
    assert tune.code == 0, tune.output
    assert sorted(tune.records) == list(range(1, 13)), tune.output


@pytest.mark.parametrize(
    ("size", "kind", "says"),
    [
        (12, "out_of_memory", "allocate"),
        (3, "crashed", "no module of that kind"),
        (4, "crashed", "step 3 is cursed"),
        (5, "timed_out", f"{TIMEOUT_S:g} s"),
        (6, "stalled", "then none for"),
        (7, "no_steps", ""),
        (8, "crashed", "SIGKILL"),
        (10, "nan", ""),
        (11, "crashed", ""),
    ],
)
def test_each_fault_gets_its_kind_and_the_real_cause(
    tune: Tune, size: int, kind: str, says: str
) -> None:
    failure = tune.records[size]["failure"]
    assert failure["kind"] == kind, failure
    assert says in failure["detail"] + "".join(failure["log_tail"])


def test_the_lines_of_the_ranks_own_exception_reach_the_user(tune: Tune) -> None:
    lines = tune.records[4]["failure"]["log_tail"]
    assert lines[0].startswith("Traceback")
    assert lines[-1].endswith("step 3 is cursed")


def test_a_stolen_port_is_named_as_the_cause(tune: Tune) -> None:
    failure = tune.records[11]["failure"]
    assert "address already in use" in (failure["detail"] + str(failure["log_tail"])).lower()


@pytest.mark.parametrize("size", [1, 2, 9])
def test_sound_candidates_are_measured_all_the_same(tune: Tune, size: int) -> None:
    assert tune.records[size]["measurement"]["step_s"]


@pytest.mark.parametrize(("size", "within_s"), [(5, TIMEOUT_S + 8), (6, TIMEOUT_S)])
def test_a_hang_ends_within_seconds_of_its_deadline(
    tune: Tune, size: int, within_s: float
) -> None:
    assert tune.records[size]["wall_s"] < within_s


def test_nothing_is_left_running(tune: Tune) -> None:
    wait_until(lambda: not tune.place.living(), "processes are left behind", within_s=5)
