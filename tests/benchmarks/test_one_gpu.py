"""The comparison of the tuner with tuning by hand, on launches and trials made up here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Record
from autoconf_launch.core import Failure, FailureKind

from ..autotuner.builders import launch as launch_of
from ..autotuner.builders import measurement, trial_of
from .conftest import import_benchmark

one_gpu = import_benchmark("one_gpu", "gpu")
plain_launches = import_benchmark("plain_launches", "gpu")
planned = import_benchmark("planned", "gpu")


def configuration(micro_batch: int, checkpointing: str = "none") -> Any:
    return planned.Configuration(micro_batch=micro_batch, checkpointing=checkpointing)


def launch(one: Any, step_s: float | None) -> Any:
    failure = None if step_s else plain_launches.OUT_OF_MEMORY
    return plain_launches.Launch(configuration=one, step_s=step_s, wall_s=10.0, failure=failure)


def trial(one: Any, step_s: float | None, *, predicted_s: float | None = None) -> Record:
    words = (
        f"micro={one.micro_batch} acc={32 // one.micro_batch} checkpointing={one.checkpointing}"
    )
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    return launch_of(
        trial_of(0, words, f"{one.checkpointing}{one.micro_batch}"),
        measurement(step_s, samples=32, peak=50) if step_s else full,
        predicted_s,
        wall_s=10.0,
        peak_bytes=55,
    )


TIMES = {
    configuration(1): 4.0,
    configuration(2): 3.0,
    configuration(4): 2.0,
    configuration(8): None,
    configuration(8, "full"): 1.9,
    configuration(16, "full"): None,
}
"""Step time of each configuration; None if it does not fit."""


def by_hand(first: int = 1, global_batch: int = 32) -> list[Any]:
    return list(
        plain_launches.tune_by_hand(lambda one: launch(one, TIMES[one]), first, global_batch)
    )


def comparison(tmp_path: Path, gpu: str | None = None) -> Any:
    return one_gpu.Comparison(
        question=planned.Question(model="gpt2-large", gpu=gpu, global_batch=32),
        first=1,
        seconds=60,
        folder=tmp_path,
        out=tmp_path / "one_gpu.json",
    )


def test_hand_tuning_turns_checkpointing_on_when_memory_runs_out_and_takes_the_fastest() -> None:
    assert [done.configuration for done in by_hand()] == list(TIMES)
    assert {done.configuration.precision for done in by_hand()} == {"bf16"}
    assert [done.configuration for done in by_hand(global_batch=4)] == [
        configuration(1),
        configuration(2),
        configuration(4),
    ]
    launches = by_hand()
    seen = one_gpu.Seen(by_hand=launches, launches=launches)
    assert one_gpu.hand_choice(seen) == configuration(8, "full")


def test_trials_until_the_best_and_medians_of_launches_are_counted() -> None:
    truth = {configuration(8): 1.0, configuration(4): 1.01, configuration(2): 3.0}
    records = [
        trial(configuration(2), 3.1),
        trial(configuration(16), None),
        trial(configuration(4), 1.2),
        trial(configuration(8), 1.0),
    ]
    assert one_gpu.trials_until_close(records, truth) == 3
    assert one_gpu.trials_until_close(records[:2], truth) is None
    launches = [launch(configuration(4), step_s) for step_s in (1.0, 9.0, 2.0)]
    assert one_gpu.Seen(launches=launches).truth == {configuration(4): 2.0}


def test_the_winner_is_launched_first_and_contenders_are_close_to_the_best(tmp_path: Path) -> None:
    live = one_gpu.Live(wall_s=1, exit_code=0, records=(trial(configuration(4, "full"), 1.0),))
    seen = one_gpu.Seen(live=live, launches=by_hand())
    rest = list(one_gpu.remaining(comparison(tmp_path), seen))
    assert rest[0] == configuration(4, "full")
    assert not {*rest} & {*TIMES}
    assert {*rest} | {*TIMES} == {*comparison(tmp_path).configurations}
    launches = [
        launch(configuration(size), step_s) for size, step_s in ((1, 3.0), (2, 2.0), (4, 1.05))
    ]
    launches.append(launch(configuration(8), 1.0))
    live = one_gpu.Live(wall_s=1, exit_code=0, records=(trial(configuration(2), 0.9),))
    seen = one_gpu.Seen(live=live, by_hand=launches[:1], launches=launches)
    assert one_gpu.contenders(seen) == [configuration(size) for size in (8, 4, 2, 1)]


@pytest.mark.parametrize("count", range(len(TIMES) + 1))
def test_answers_are_written_wherever_the_launches_are_cut(tmp_path: Path, count: int) -> None:
    launches = by_hand()[:count]
    document = one_gpu.answers(
        comparison(tmp_path), one_gpu.Seen(by_hand=launches, launches=list(launches))
    )
    assert document["launched"] == count
    assert document["by_hand"]["launches"] == count
    assert document["tuner"] is None
    assert document["gain_over_hand_percent"] is None


def test_answers_compare_the_tuner_with_hand_tuning(tmp_path: Path) -> None:
    launches = by_hand()
    winner = configuration(4, "full")
    live = one_gpu.Live(
        wall_s=50.0,
        exit_code=0,
        records=(trial(configuration(1), 4.0), trial(winner, 2.0, predicted_s=1.5)),
        summary={"winner": "full4"},
    )
    seen = one_gpu.Seen(
        live=live,
        by_hand=launches,
        is_hand_tuning_complete=True,
        launches=[*launches, launch(winner, 1.0)],
    )
    document = one_gpu.answers(comparison(tmp_path, "H100-SXM-80GB"), seen)
    assert document["gain_over_hand_percent"] == pytest.approx(90.0)
    assert document["tuner"]["gain_over_untouched_percent"] == pytest.approx(300.0)
    assert document["tuner"]["trials_until_close"] == 2
    assert document["by_hand"]["wall_s"] == pytest.approx(60.0)
    assert document["by_hand"]["out_of_memory"] == 2
    assert document["errors_percent"]["tuner_step"] == pytest.approx(25.0)
    assert document["errors_percent"]["tuner_memory"] == pytest.approx(10.0)
    assert document["errors_percent"]["plan_step"] > 0


def test_an_interrupted_benchmark_writes_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Any, seen: Any) -> None:
        seen.launches.append(launch(configuration(4), 2.0))
        one_gpu._stop()

    monkeypatch.setattr(one_gpu, "measure", interrupt)
    with pytest.raises(SystemExit):
        one_gpu.report(comparison(tmp_path))
    assert '"launched": 1' in (tmp_path / "one_gpu.json").read_text()


def test_the_tune_searches_from_the_first_micro_batch_in_bf16(tmp_path: Path) -> None:
    words = one_gpu.tune_words(comparison(tmp_path), 70.0)
    assert {"--batch_size=1", "--accumulation=32", "--precision=bf16"} < {*words}
    assert '--knob=--checkpointing=["none", "full"]' in words


def test_plain_launches_report_their_steps_or_the_last_line() -> None:
    done = plain_launches.launch_script(
        "tiny", 2, configuration(2), plain_launches.Deadline.after(120)
    )
    assert done.failure is None
    assert 0 < done.step_s < done.wall_s
    done = plain_launches.launch_script(
        "nothing", 2, configuration(2), plain_launches.Deadline.after(120)
    )
    assert done.step_s is None
    assert "invalid choice: 'nothing'" in done.failure
    script = "echo begun; trap 'echo ended; exit' TERM; while :; do sleep 0.05; done"
    began_s = time.monotonic()
    with pytest.raises(plain_launches.OutOfTimeError, match=r"begun\nended"):
        plain_launches.run_until(("bash", "-c", script), plain_launches.Deadline.after(0.5))
    assert time.monotonic() - began_s < 15
    run: Callable[..., Any] = plain_launches.launch_script
    with pytest.raises(plain_launches.OutOfTimeError):
        run("tiny", 2, configuration(2), plain_launches.Deadline.after(-1))


@pytest.mark.parametrize(
    "text", ["torch.OutOfMemoryError: CUDA out of memory. Tried …", "CUDA error: out of memory"]
)
def test_refused_memory_is_recognized(text: str) -> None:
    assert plain_launches.failure_of(f"{text}\nlast line") == plain_launches.OUT_OF_MEMORY
