"""One GPU: the tuner beside tuning by hand, and both beside the best configuration.

Micro-batch and checkpointing of ``train.py`` in bf16. The tuner runs first, live, with empty
histories and caches. Then the script is launched plainly: as a careful user tunes by hand, then
every other configuration, then the fastest ones again while time is left. Predictions of ``plan``
and of the tuner are reported with the measurements. Partial answers are always written.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from plain_launches import (
    OUT_OF_MEMORY,
    SCRIPT,
    Deadline,
    Launch,
    OutOfTimeError,
    launch_script,
    run_until,
    script_arguments,
    tune_by_hand,
)
from planned import TOKENS, Configuration, Question, gpu_of_this_machine, predict

from autoconf_launch.autotuner.space import Record
from autoconf_launch.launcher.results.journal import read_journal

CLOSE = 1.02
"""A configuration is as good as the best if its step takes at most this many times as long."""
CONTENDERS = 1.10
"""Configurations within this factor of the best are launched again while time is left."""
TUNE_SHARE = 0.5
"""Share of the time that the tuner may use."""
_BUDGET_SHARE = 0.85
"""Share of the tune's time that its search may use; the rest is for start and end."""
_CHECKPOINTING = ("none", "full")
_MOST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Workload, start, limit and folders of one comparison.

    Attributes:
        first: micro-batch that the tuner and the user who tunes by hand start from.
    """

    question: Question
    first: int
    seconds: float
    folder: Path
    out: Path

    @property
    def configurations(self) -> list[Configuration]:
        """The whole space, those with large micro-batches first, because they are the fastest."""
        sizes = []
        size = self.first
        while size <= self.question.global_batch:
            sizes.append(size)
            size *= 2
        return [
            Configuration(micro_batch=size, checkpointing=checkpointing)
            for size in reversed(sizes)
            for checkpointing in _CHECKPOINTING
        ]


@dataclass(frozen=True, kw_only=True)
class Live:
    """What the real tune did; ``summary`` is empty if it was ended before it wrote one."""

    wall_s: float
    exit_code: int | None
    records: tuple[Record, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def winner(self) -> Configuration | None:
        """The configuration that the tune recommends, or its fastest one so far."""
        name = self.summary.get("winner")
        measured = [record for record in self.records if record.measurement]
        for record in measured:
            if record.trial.name == name:
                return configuration_of(record)
        fastest = min(measured, key=lambda record: _trial_step_s(record) or 0.0, default=None)
        return configuration_of(fastest) if fastest else None


@dataclass(kw_only=True)
class Seen:
    """Everything that was measured so far."""

    live: Live | None = None
    by_hand: list[Launch] = field(default_factory=list)
    is_hand_tuning_complete: bool = False
    launches: list[Launch] = field(default_factory=list)

    @property
    def winner(self) -> Configuration | None:
        """The tuner's choice; None before it has one."""
        return self.live.winner if self.live else None

    @property
    def truth(self) -> dict[Configuration, float]:
        """Step time of each configuration, the median over its plain launches, fastest first."""
        times: dict[Configuration, list[float]] = {}
        for launch in self.launches:
            if launch.step_s is not None:
                times.setdefault(launch.configuration, []).append(launch.step_s)
        medians = {one: statistics.median(seconds) for one, seconds in times.items()}
        return dict(sorted(medians.items(), key=lambda pair: pair[1]))


def configuration_of(record: Record) -> Configuration:
    """The configuration of a trial."""
    candidate = record.trial.candidate
    extras = {name.lstrip("-"): value for name, value in candidate.extras}
    return Configuration(
        micro_batch=candidate.layout.micro_batch,
        checkpointing=str(extras.get("checkpointing", "none")),
    )


def _trial_step_s(record: Record) -> float | None:
    return record.measurement.mean_step_s if record.measurement else None


def tune_words(comparison: Comparison, seconds: float) -> tuple[str, ...]:
    """The tune's command, as a user writes it."""
    question = comparison.question
    start = Configuration(micro_batch=comparison.first)
    arguments = script_arguments(question.model, question.global_batch, start)
    return (
        *(sys.executable, "-m", "autoconf_launch", "tune", "--num_gpus=1", "--effort=quick"),
        *(f"--budget={seconds:.0f}s", "--soak-steps=0"),
        "--arg=gradient_accumulation_steps=--accumulation",
        f"--knob=--checkpointing={json.dumps(_CHECKPOINTING)}",
        str(SCRIPT),
        *arguments,
    )


def tune_live(comparison: Comparison, deadline: Deadline) -> Live:
    """Run the real command in a new folder, without earlier times or compiled code."""
    folder = comparison.folder / "tune"
    folder.mkdir(parents=True)
    caches = ("XDG_DATA_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    extra = {name: str(comparison.folder / name.lower()) for name in caches}
    began_s = time.monotonic()
    try:
        words = tune_words(comparison, _BUDGET_SHARE * deadline.left_s)
        code, text = run_until(words, deadline, folder=folder, extra=extra)
    except OutOfTimeError as error:
        code, text = None, f"{error}\nended at its deadline"
    wall_s = time.monotonic() - began_s
    print(text, flush=True)
    results = folder / "autotuning_results"
    journal, summary = results / "journal.jsonl", results / "summary.json"
    return Live(
        wall_s=wall_s,
        exit_code=code,
        records=read_journal(journal).records if journal.exists() else (),
        summary=json.loads(summary.read_text()) if summary.exists() else {},
    )


def measure(comparison: Comparison, seen: Seen) -> None:
    """Fill ``seen``, the most informative measurements first.

    Raises:
        OutOfTimeError: the time is over; ``seen`` has what was measured until then.
    """
    deadline = Deadline.after(comparison.seconds)
    seen.live = tune_live(comparison, Deadline.after(TUNE_SHARE * comparison.seconds))

    def launch(configuration: Configuration) -> Launch:
        question = comparison.question
        done = launch_script(question.model, question.global_batch, configuration, deadline)
        print(done, flush=True)
        seen.launches.append(done)
        return done

    for done in tune_by_hand(launch, comparison.first, comparison.question.global_batch):
        seen.by_hand.append(done)
    seen.is_hand_tuning_complete = True
    for configuration in remaining(comparison, seen):
        launch(configuration)
    for _ in range(1, _MOST_ROUNDS):
        for configuration in contenders(seen):
            launch(configuration)


def remaining(comparison: Comparison, seen: Seen) -> Iterator[Configuration]:
    """Configurations that hand tuning skipped; the tuner's winner comes first."""
    launched = {launch.configuration for launch in seen.launches}
    ordered = [seen.winner] if seen.winner else []
    ordered += [one for one in comparison.configurations if one != seen.winner]
    return (one for one in ordered if one not in launched)


def contenders(seen: Seen) -> list[Configuration]:
    """Configurations that may be the best one, and the two choices that are compared."""
    truth = seen.truth
    best_s = min(truth.values(), default=0.0)
    choices = {seen.live.winner if seen.live else None, hand_choice(seen)}
    return [
        one for one, step_s in truth.items() if step_s <= CONTENDERS * best_s or one in choices
    ]


def hand_choice(seen: Seen) -> Configuration | None:
    """The fastest configuration of those launched by hand."""
    truth = seen.truth
    tried = [one.configuration for one in seen.by_hand if one.configuration in truth]
    return min(tried, key=truth.__getitem__, default=None)


def trials_until_close(records: Sequence[Record], truth: dict[Configuration, float]) -> int | None:
    """Number of trials until one is within 2 % of the best; None if there was none.

    The first trial, which is the user's own configuration, counts, and so do failures.
    """
    best_s = min(truth.values(), default=0.0)
    for count, record in enumerate(records, start=1):
        step_s = truth.get(configuration_of(record))
        if step_s is not None and step_s <= CLOSE * best_s:
            return count
    return None


def rows_of(comparison: Comparison, seen: Seen) -> list[dict[str, Any]]:
    """All numbers of each configuration: launched, tried by the tuner, planned."""
    truth = seen.truth
    records = {configuration_of(r): r for r in (seen.live.records if seen.live else ())}
    rows = []
    for one in comparison.configurations:
        launches = [launch for launch in seen.launches if launch.configuration == one]
        planned, record = predict(comparison.question, one), records.get(one)
        memory = record.outcome.memory if record and record.measurement else None
        prediction = record.prediction if record else None
        rows.append(
            {
                "micro_batch": one.micro_batch,
                "checkpointing": one.checkpointing,
                "step_s": truth.get(one),
                "launched_step_s": [launch.step_s for launch in launches],
                "failures": [launch.failure for launch in launches if launch.failure],
                "trial_step_s": _trial_step_s(record) if record else None,
                "trial_peak_bytes": memory.peak_bytes if memory else None,
                "trial_failure": record.failure.kind.value if record and record.failure else None,
                "planned_fits": planned.fits,
                "planned_step_s": planned.step_s,
                "planned_peak_bytes": planned.peak_bytes,
                "tuner_step_s": prediction.step_s if prediction else None,
                "tuner_peak_bytes": prediction.peak_bytes if prediction else None,
            }
        )
    return rows


def mean_error_percent(
    rows: Sequence[dict[str, Any]], predicted: str, measured: str
) -> float | None:
    """Mean absolute relative error over the rows that have both numbers."""
    pairs = [(row[predicted], row[measured]) for row in rows]
    errors = [abs(said / truth - 1.0) for said, truth in pairs if said and truth]
    return 100 * sum(errors) / len(errors) if errors else None


def answers(comparison: Comparison, seen: Seen) -> dict[str, Any]:
    """The report: answers first, then the numbers of each configuration."""
    rows, truth = rows_of(comparison, seen), seen.truth
    best = next(iter(truth), None)
    untouched = truth.get(Configuration(micro_batch=comparison.first))
    settled = {one.configuration for one in seen.launches}
    return {
        "model": comparison.question.model,
        "gpu": comparison.question.gpu,
        "global_batch": comparison.question.global_batch,
        "configurations": len(comparison.configurations),
        "launched": len(settled),
        "best": vars(best) | {"step_s": truth[best]} if best else None,
        "tuner": _tuner_answer(seen, untouched),
        "by_hand": _hand_answer(seen, untouched),
        "gain_over_hand_percent": _gain_percent(
            _step_s(truth, hand_choice(seen)), _step_s(truth, seen.winner)
        ),
        "errors_percent": {
            "plan_step": mean_error_percent(rows, "planned_step_s", "step_s"),
            "plan_memory": mean_error_percent(rows, "planned_peak_bytes", "trial_peak_bytes"),
            "tuner_step": mean_error_percent(rows, "tuner_step_s", "trial_step_s"),
            "tuner_memory": mean_error_percent(rows, "tuner_peak_bytes", "trial_peak_bytes"),
        },
        "rows": rows,
    }


def _tuner_answer(seen: Seen, untouched_s: float | None) -> dict[str, Any] | None:
    live, truth = seen.live, seen.truth
    if live is None:
        return None
    winner = live.winner
    step_s = _step_s(truth, winner)
    return {
        "exit_code": live.exit_code,
        "wall_s": live.wall_s,
        "trials": len(live.records),
        "trials_until_close": trials_until_close(live.records, truth),
        "choice": vars(winner) if winner else None,
        "step_s": step_s,
        "behind_best_percent": _gain_percent(step_s, min(truth.values(), default=None)),
        "gain_over_untouched_percent": _gain_percent(untouched_s, step_s),
        "certificate": live.summary.get("certificate"),
        "ties": live.summary.get("ties"),
        "stop": live.summary.get("stop"),
    }


def _hand_answer(seen: Seen, untouched_s: float | None) -> dict[str, Any]:
    choice = hand_choice(seen)
    step_s = _step_s(seen.truth, choice)
    return {
        "complete": seen.is_hand_tuning_complete,
        "wall_s": sum(launch.wall_s for launch in seen.by_hand),
        "launches": len(seen.by_hand),
        "out_of_memory": sum(launch.failure == OUT_OF_MEMORY for launch in seen.by_hand),
        "choice": vars(choice) if choice else None,
        "step_s": step_s,
        "behind_best_percent": _gain_percent(step_s, min(seen.truth.values(), default=None)),
        "gain_over_untouched_percent": _gain_percent(untouched_s, step_s),
    }


def _step_s(truth: dict[Configuration, float], choice: Configuration | None) -> float | None:
    return truth.get(choice) if choice else None


def _gain_percent(slower_s: float | None, faster_s: float | None) -> float | None:
    """Gain in speed from the first step time to the second one."""
    return 100 * (slower_s / faster_s - 1.0) if slower_s and faster_s else None


def report(comparison: Comparison) -> dict[str, Any]:
    """Measure until the time is over, and write the answers whatever ends it."""
    seen = Seen()
    try:
        measure(comparison, seen)
    except OutOfTimeError:
        print("out of time: the answers are from the launches so far", flush=True)
    finally:
        document = answers(comparison, seen)
        comparison.out.write_text(json.dumps(document, indent=1) + "\n")
    return document


def _stop(*_: object) -> NoReturn:
    raise SystemExit("ended by SIGTERM; the answers are from the launches so far")


def main() -> None:
    """Measure and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=(*TOKENS, "tiny"), default="gpt2-large")
    parser.add_argument("--gpu", help="its name in our tables; default: this machine's")
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--first", type=int, default=1, help="micro-batch to start from")
    parser.add_argument("--seconds", type=float, default=540, help="limit of the whole benchmark")
    parser.add_argument("--out", type=Path, default=Path("one_gpu.json"))
    parser.add_argument("--folder", type=Path, help="folder of the tune; default: a temporary one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="one-gpu-") as temporary:
        comparison = Comparison(
            question=Question(
                model=options.model,
                gpu=options.gpu or gpu_of_this_machine(),
                global_batch=options.global_batch,
            ),
            first=options.first,
            seconds=options.seconds,
            folder=(options.folder or Path(temporary)).resolve(),
            out=options.out.resolve(),
        )
        document = report(comparison)
    print(json.dumps({key: value for key, value in document.items() if key != "rows"}, indent=1))


if __name__ == "__main__":
    main()
