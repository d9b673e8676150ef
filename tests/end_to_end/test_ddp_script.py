"""A data-parallel script that knows nothing of us, on two ranks; one of them may fail."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from .conftest import Place, Tune, wait_until

SCRIPTS = Path(__file__).parent / "scripts"
LOOP, FAULTY = str(SCRIPTS / "ddp_loop.py"), str(SCRIPTS / "ddp_faulty.py")
QUICK = (
    "--max-parallel-trials=1",
    "--soak_steps=0",
    "--end_profile_step=5",
    "--tuner_type=gridsearch",
    "--tuner-early-stopping=50",
    "--allow-global-batch-change",
)
TIMEOUT_S, STALL_S = 120.0, 8.0


def list_(*sizes: int) -> str:
    return f"--knob=train_micro_batch_size_per_gpu={list(sizes)}"


def records(place: Place) -> dict[int, dict[str, Any]]:
    """Outcome of each trial, by its micro-batch."""
    found = [line for line in place.journal("name") if "wall_s" in line]
    return {int(line["name"].rpartition("tmbspg")[2]): line for line in found}


def run(place: Place, *argv: str) -> tuple[int, str]:
    process = place.start(*argv)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


@pytest.mark.slow
def test_a_launch_by_torchrun_is_measured_as_it_stands(place: Place) -> None:
    words = ("torchrun", "--nproc_per_node", "2", LOOP, "--batch_size", "8")
    code, output = run(place, "--autotuning=tune", *QUICK, list_(8), "--", *words)
    assert code == 0, output
    result = json.loads((place.results / "z0_gas1_tmbspg8" / "result.json").read_text())
    applied = result["applied"]
    assert (applied["data_parallel"], applied["micro_batch"]) == (2, 8)
    assert "DDP over 2 ranks" in applied["description"]


@pytest.mark.slow
def test_run_trains_on_both_ranks_to_the_scripts_own_end(place: Place) -> None:
    words = ("--num_gpus=2", LOOP, "--batch_size=8")
    code, output = run(place, "--autotuning=run", *QUICK, list_(8, 32), *words)
    assert code == 0, output
    winner = place.summary()["winner"]
    size = int(winner.rpartition("tmbspg")[2])
    assert f"{1024 // size} steps of {size} on 2" in output
    assert f"--batch_size={size}" in (place.results / "cmd_optimal.txt").read_text()


@pytest.fixture(scope="module")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Tune:
    place = Place(tmp_path_factory.mktemp("ddp_faults"), uuid.uuid4().hex)
    limits = (f"--trial-timeout={TIMEOUT_S}", f"--stall-timeout={STALL_S}")
    sizes = list_(8, 31, 32, 9, 10, 11, 12, 13)
    words = (*QUICK, *limits, sizes, "--num_gpus=2", FAULTY, "--batch_size", "8")
    code, output = run(place, "--autotuning=tune", *words)
    return Tune(place, code, output, records(place))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kind", "says"),
    [
        (31, "out_of_memory", "rank 1: "),
        (9, "crashed", "rank 1: RuntimeError: step 3 is cursed"),
        (10, "crashed", "no such data"),
        (11, "crashed", "rank 1 was killed by SIGKILL"),
        (12, "stalled", " steps, then none for 8 s (--stall-timeout)"),
        (13, "crashed", "rank 1 had ended without an error before it"),
    ],
)
def test_a_fault_on_one_rank_gets_its_true_name(
    tune: Tune, size: int, kind: str, says: str
) -> None:
    failure = tune.records[size]["failure"]
    assert failure["kind"] == kind, failure
    assert says in failure["detail"] + "".join(failure["log_tail"])


@pytest.mark.slow
def test_the_tune_goes_on_after_every_fault(tune: Tune) -> None:
    assert tune.code == 0, tune.output
    assert tune.records[8]["measurement"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [31, 9, 10, 11, 12, 13])
def test_no_fault_waits_for_the_time_limit(tune: Tune, size: int) -> None:
    assert tune.records[size]["wall_s"] < TIMEOUT_S / 2


@pytest.mark.slow
def test_nothing_is_left_running(tune: Tune) -> None:
    wait_until(lambda: not tune.place.living(), "processes are left behind", within_s=5)


@pytest.mark.slow
def test_a_plain_loop_out_of_memory_is_found_in_seconds_and_the_tune_goes_on(
    place: Place,
) -> None:
    words = ("--num_gpus=1", FAULTY, "--batch_size", "8")
    code, output = run(place, "--autotuning=tune", *QUICK, list_(8, 32, 16), *words)
    assert code == 0, output
    found = records(place)
    assert found[32]["failure"]["kind"] == "out_of_memory", found[32]
    assert found[16]["measurement"]
