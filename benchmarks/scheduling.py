"""Idle time of hosts shared by trials of several sizes, and the extra trials of eight at a time.

    python benchmarks/scheduling.py [--write]

The controller and its journal run 1,000 trials of 1 to 64 hosts on 512 hosts that are simulated:
a backend whose jobs end by its own clock. A trial's number is its place in the order of proposals,
the best first. Idle time is avoidable if hosts are free although a trial waits, even if it would
not fit; after the last start nothing waits. The waiting trial with the smallest number is at the
head.

The second table replays published measurements (``search_landscapes.py``) with one trial at a
time and with eight, each of which is replaced as soon as it ends: trials in the order of proposals
up to the first within 2 % of the best of its group. The first eight are proposed without results.
``--write`` puts both into ``benchmarks/results/scheduling.md``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from search_landscapes import GOOD_ENOUGH, TABLES, landscapes, left_out_physics, markdown
from tuner_walk import Landscape, ReplayRules, run, score

from autoconf_launch.autotuner.search.listed import ListedStudy
from autoconf_launch.autotuner.space.trial import (
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.autotuner.strategies import load_strategy
from autoconf_launch.core import Candidate, Failure, Layout, Mode, RankTask
from autoconf_launch.launcher.engines import HostSlots, Job, JobEnd
from autoconf_launch.launcher.hosts import Share, Size, SlotPool
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results.journal import Fingerprint, Journal
from autoconf_launch.launcher.tuning.controller import Controller
from autoconf_launch.launcher.tuning.running import TimeBudget, TrialLimits

RESULT = Path(__file__).parent / "results" / "scheduling.md"
HOSTS, TRIALS, MOST_HOSTS = 512, 1000, 64
SHARES = 8
MEASURED = Measurement(step_s=(1.0, 1.0), samples_per_step=1, world_size=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A simulated trial: hosts that it needs, seconds that it takes."""

    hosts: int
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A launch that has begun."""

    plan: LaunchPlan
    launch: Launch
    start_s: float
    handle: str = ""
    is_queued: bool = False

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + self.launch.took_s


class SimulatedBackend:
    """Jobs that take only time of the simulated clock."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.jobs: list[SimulatedJob] = []
        self._launches = launches
        self._now_s = 0.0

    def clock(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def submit(self, plan: LaunchPlan) -> SimulatedJob:
        """Begin now."""
        job = SimulatedJob(plan=plan, launch=self._launches[int(plan.name)], start_s=self._now_s)
        self.jobs.append(job)
        return job

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of those whose time is over."""
        return tuple(self._end(job) for job in jobs if isinstance(job, SimulatedJob))

    def _end(self, job: SimulatedJob) -> JobEnd | None:
        if job.end_s > self._now_s:
            return None
        return JobEnd(exit_code=0, outcome=MEASURED, wall_s=job.launch.took_s)

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Put the clock forward to the next end, or by the timeout."""
        next_s = min(job.end_s for job in jobs if isinstance(job, SimulatedJob))
        self._now_s = min(next_s, self._now_s + timeout_s)

    def cancel(self, job: Job, reason: Failure) -> None:
        """Nothing is cancelled here."""

    def send_signal(self, job: Job, number: int) -> None:
        """Signals have no effect here."""

    def end_orphan(self, handle: str, host: str) -> None:
        """Nothing outlives the simulation."""

    def close(self) -> None:
        """Nothing is kept."""


class PlansAlone:
    """Trials without files."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """A plan that names the trial."""
        task = RankTask(mode=Mode.MEASURE, folder=".", attempt=attempt)
        return LaunchPlan(name=trial.name, ranks=(), working_directory=".", task=task)

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """Nothing is left of earlier launches."""
        return None

    def predict(self, trial: Trial) -> Prediction | None:
        """Nothing is known."""
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        """It is complete."""
        return outcome

    def finish(self, record: Record) -> None:
        """Nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Result of a simulation; ``idle`` is a share of all host-seconds until the last start."""

    mix: str
    idle: float
    longest_s: float
    head_wait_s: float
    makespan_s: float
    took_s: float


def draw_launches(mix: str, seed: int) -> list[Launch]:
    """Trials in the order of asking."""
    draw = random.Random(seed)
    sizes = {
        "1 to 64 hosts, all alike": lambda: draw.randint(1, MOST_HOSTS),
        "1, 2, 4, … 64 hosts": lambda: 2 ** draw.randint(0, 6),
        "one of 64 hosts after nine of 1 to 4": lambda: draw.choice([*[0] * 9, MOST_HOSTS]),
    }
    own = sizes[mix]
    return [
        Launch(hosts=own() or draw.randint(1, 4), took_s=draw.lognormvariate(4.8, 0.6))
        for _ in range(TRIALS)
    ]


MIXES = (
    "1 to 64 hosts, all alike",
    "1, 2, 4, … 64 hosts",
    "one of 64 hosts after nine of 1 to 4",
)


def simulate(mix: str, seed: int) -> Schedule:
    """Run the trials of a mix."""
    launches = draw_launches(mix, seed)
    backend = SimulatedBackend(launches)
    trials = [
        Trial(number=n, name=str(n), candidate=Candidate(layout=Layout()), space="z0")
        for n in range(TRIALS)
    ]
    study = ListedStudy(trials, most_steps=1, most_s=1.0)
    pool = SlotPool(
        [HostSlots(host=f"host{number}", slots=(0,)) for number in range(HOSTS)],
        lambda place: Share(),
        size_of=lambda plan: Size(nodes=launches[int(plan.name)].hosts),
    )
    budget = TimeBudget(began_s=backend.clock(), clock=backend.clock)
    limits = TrialLimits(timeout_s=1e6, stall_s=1e6, budget=budget)
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, Journal(Path(name) / "journal.jsonl") as journal:
        header = Fingerprint(script="", arguments=(), config="", hardware=(), versions=())
        journal.write_header(header)
        Controller(
            study,
            backend,
            PlansAlone(),
            journal=journal,
            listener=lambda event: None,
            limits=limits,
        ).run(pool)
    took_s = time.perf_counter() - started_s
    return judge(mix, backend.jobs, took_s)


def judge(mix: str, jobs: Sequence[SimulatedJob], took_s: float) -> Schedule:
    """Idle time and waits of a schedule in which every trial ran once.

    Raises:
        AssertionError: one ran twice or never, or hosts had two trials at a time.
    """
    by_number = sorted(jobs, key=lambda job: int(job.plan.name))
    assert [int(job.plan.name) for job in by_number] == list(range(TRIALS))
    last_s = max(job.start_s for job in jobs)
    changes = [(job.start_s, job.launch.hosts) for job in jobs]
    changes += [(job.end_s, -job.launch.hosts) for job in jobs]
    busy = idle_s = now_s = 0.0
    for at_s, hosts in sorted(changes):  # ends before starts of the same moment
        idle_s += (HOSTS - busy) * max(0.0, min(at_s, last_s) - now_s)
        busy, now_s = busy + hosts, min(at_s, last_s)
        assert 0 <= busy <= HOSTS
    became_head_s = head_wait_s = 0.0
    for job in by_number:
        head_wait_s = max(head_wait_s, job.start_s - became_head_s)
        became_head_s = max(became_head_s, job.start_s)
    return Schedule(
        mix=mix,
        idle=idle_s / (HOSTS * last_s),
        longest_s=max(job.launch.took_s for job in jobs),
        head_wait_s=head_wait_s,
        makespan_s=max(job.end_s for job in jobs),
        took_s=took_s,
    )


def schedules_table(schedules: Sequence[Schedule]) -> str:
    """A row for each mix."""
    header = ("trials", "idle while any waits", "longest wait at the head", "longest trial")
    header += ("all trials", "simulated in")
    rows = [
        [
            one.mix,
            f"{100 * one.idle:.1f} %",
            f"{one.head_wait_s:.0f} s",
            f"{one.longest_s:.0f} s",
            f"{one.makespan_s / 3600:.2f} h",
            f"{one.took_s:.1f} s",
        ]
        for one in schedules
    ]
    return markdown(rows, header)


def count_trials(groups: Sequence[Landscape], shares: int) -> int:
    """Trials of all groups to within 2 %, ``shares`` at a time."""
    rules = ReplayRules(good_enough=GOOD_ENOUGH, to_saturation=True, shares=shares)
    strategy = load_strategy("model_based")
    return sum(score(one, run(one, strategy, rules, 0)).trials_to[0] for one in groups)


def shares_table() -> str:
    """A row for each landscape and the search's knowledge of it."""
    corrected = landscapes(left_out_physics())
    blind = {
        table: [replace(group, predictions=None) for group in groups]
        for table, groups in corrected.items()
    }
    header = ("landscape", "groups", "predicted: one", "eight", "ratio")
    header += ("not predicted: one", "eight", "ratio")
    rows, sums = [], [0, 0, 0, 0]
    for table in TABLES:
        counts = [
            count_trials(found[table], shares)
            for found in (corrected, blind)
            for shares in (1, SHARES)
        ]
        sums = [whole + own for whole, own in zip(sums, counts, strict=True)]
        rows.append(_row(table, len(corrected[table]), counts))
    groups = sum(map(len, corrected.values()))
    return markdown([*rows, _row("all", groups, sums)], header)


MOST_RATIO = 1.5
"""Target for the ratio of trials with eight at a time to trials with one."""


def _row(name: str, groups: int, counts: Sequence[int]) -> list[str]:
    one, eight, blind_one, blind_eight = counts
    ratios = (_ratio_text(eight / one), _ratio_text(blind_eight / blind_one))
    return [
        name,
        str(groups),
        *(str(one), str(eight), ratios[0]),
        *(str(blind_one), str(blind_eight), ratios[1]),
    ]


def _ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio <= MOST_RATIO else f"**{ratio:.2f}: missed**"


PREAMBLE = f"""# Many trials at once

Made by `python benchmarks/scheduling.py --write`; that file says what is counted. To reach: idle
time under 5 %, no wait at the head beyond twice the longest trial, each mix in under 30 s; eight
trials at a time need at most {MOST_RATIO} times the trials of one (above it stands: missed).

{TRIALS} trials on {HOSTS} hosts:
"""


def main() -> None:
    """Print the tables, and write them if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    simulated = schedules_table([simulate(mix, seed=1) for mix in MIXES])
    again = "Trials to within 2 % of the best, summed over the groups of each landscape:\n"
    text = f"{PREAMBLE}\n{simulated}\n\n{again}\n{shares_table()}\n"
    print(text)
    if flags.write:
        RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
