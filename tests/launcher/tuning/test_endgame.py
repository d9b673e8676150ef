"""Launches after a search, on replayed outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import estimate_noise
from autoconf_launch.autotuner.playoff import Decider, rounds_of
from autoconf_launch.autotuner.space import OBJECTIVES, AutotuningSettings, FailedTrial, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.events import Event, Listener, Note, RoundFinished
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Journal, JournalContents, read_journal
from autoconf_launch.launcher.tuning import (
    Controller,
    Endgame,
    Search,
    TimeBudget,
    TrialLimits,
    play,
)

from ..controlled import LIMITS, ReplayIO, open_journal, run_study, space
from ..replay_backend import ReplayBackend, ReplayJob

NAN = FailedTrial(failure=Failure(kind=FailureKind.NAN, detail="it did"))
CRASH = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))


@dataclass
class Seen:
    """Plans that were submitted and events that were told."""

    plans: list[LaunchPlan] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    @property
    def soaks(self) -> list[str]:
        return [plan.name for plan in self.plans if plan.name.endswith("_soak")]


def again(records: tuple[Record, ...], failing: str, failure: FailedTrial = NAN) -> list[Record]:
    """Outcomes for every launch after the search."""
    found = []
    for record in records:
        name = record.trial.name
        soak = failure if name == failing else record.outcome
        found += [replace(record, trial=replace(record.trial, name=f"{name}_final"))] * 40
        found.append(
            replace(record, trial=replace(record.trial, name=f"{name}_soak"), outcome=soak)
        )
    return found


def play_to_end(
    journal: Journal,
    *,
    soak_asked: int | None = None,
    failing: str = "",
    failure: FailedTrial = NAN,
    earlier: JournalContents | None = None,
    added: tuple[Record, ...] = (),
    elapsed_s: float = 1000.0,
    side_by_side: bool = True,
    apart: str = "",
    budget: TimeBudget | None = None,
) -> tuple[Endgame, Seen]:
    """The end of a study of small micro-batches, whose larger ones are faster.

    ``added``: trials of the search besides the ``earlier`` ones. Trials count as made side by
    side, so that rounds are needed.
    """
    study, _ = run_study(space(), journal) if earlier is None else (None, None)
    records = study.records if study else (*(earlier or JournalContents()).records, *added)
    seen = Seen()

    class Backend(ReplayBackend):
        def submit(self, plan: LaunchPlan) -> ReplayJob:
            seen.plans.append(plan)
            return super().submit(plan)

    backend = Backend(again(records, failing, failure))

    def control(decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider, backend, ReplayIO(), journal=journal, listener=listener, limits=limits
        )

    search = Search(
        records=records,
        settings=AutotuningSettings(),
        noise=estimate_noise(records),
        elapsed_s=elapsed_s,
        side_by_side=side_by_side,
        apart=apart,
        budget=budget or TimeBudget(),
    )
    end = play(
        search,
        control,
        listener=seen.events.append,
        limits=replace(LIMITS, budget=search.budget),
        earlier=earlier or JournalContents(),
        soak_asked=soak_asked,
    )
    return end, seen


def test_the_best_are_measured_in_rounds_and_the_winner_soaks(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal)
    assert seen.soaks == ["z0_gas1_tmbspg6_soak"]
    assert len(end.playoff) == len(seen.plans) - 1


def test_a_search_that_has_decided_is_followed_by_the_verification_run(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal, side_by_side=False)
    assert end.playoff == ()
    assert [plan.name for plan in seen.plans] == seen.soaks == ["z0_gas1_tmbspg6_soak"]


def test_each_round_is_told_once_with_its_standings(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        _, seen = play_to_end(journal)
    rounds = [event for event in seen.events if isinstance(event, RoundFinished)]
    assert [event.number for event in rounds] == list(range(1, len(rounds) + 1))
    assert all(event.standings[0].behind == 0.0 for event in rounds)


def test_a_rounds_intervals_are_those_that_decide(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal)
        records = journal.read().records
    last = [event for event in seen.events if isinstance(event, RoundFinished)][-1]
    noise = estimate_noise(records)
    rounds = rounds_of(records, end.playoff, OBJECTIVES["throughput"], noise)
    contenders = {contender.name: contender for contender in rounds.contenders}
    first, *others = last.standings
    for other in others:
        contender = contenders[other.trial.name]
        found = rounds.compare(contender, contenders[first.trial.name])
        assert other.width == pytest.approx(found.width)


def test_without_a_soak_the_rounds_are_all(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal, soak_asked=0)
    assert (end.soaks, seen.soaks) == ((), [])


def test_who_does_not_hold_out_gives_way_to_the_next_best(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal, failing="z0_gas1_tmbspg6")
    assert seen.soaks == ["z0_gas1_tmbspg6_soak", "z0_gas1_tmbspg5_soak"]
    assert [record.failure is None for record in end.soaks] == [False, True]


def test_who_crashes_has_a_second_attempt_without_what_was_moved_into_it(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal, failing="z0_gas1_tmbspg6", failure=CRASH)
    assert seen.soaks == ["z0_gas1_tmbspg6_soak"] * 2 + ["z0_gas1_tmbspg5_soak"]
    assert [record.trial.attempt for record in end.soaks] == [1, 2, 1]


def test_after_a_short_search_side_by_side_the_best_three_are_measured_all_the_same(
    tmp_path: Path,
) -> None:
    with open_journal(tmp_path) as journal:
        end, _ = play_to_end(journal, elapsed_s=0.001)
    assert len({record.trial.name for record in end.playoff}) == 4  # the baseline beside them


def test_what_the_journal_has_is_not_launched_again(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        first, _ = play_to_end(journal)
        contents = journal.read()
        second, seen = play_to_end(journal, earlier=contents)
    assert seen.plans == []
    assert (second.playoff, second.soaks) == (first.playoff, first.soaks)
    assert (contents.finals, len(contents.soaks)) == (first.playoff, 1)


def interrupt(path: Path) -> tuple[JournalContents, Endgame]:
    """A study that was interrupted in the first launch after the search, and as it would end."""
    with open_journal(path) as journal:
        end, _ = play_to_end(journal)
    file = path / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    began = next(n for n, line in enumerate(lines) if b'_final"' in line)
    file.write_bytes(b"".join(lines[: began + 1]))
    return read_journal(file), end


def test_resumed_rounds_have_the_time_that_they_began_with(tmp_path: Path) -> None:
    earlier, whole = interrupt(tmp_path)
    with Journal(tmp_path / "journal.jsonl") as journal:
        end, _ = play_to_end(journal, earlier=earlier, elapsed_s=0.001)
    assert [record.trial for record in end.playoff] == [record.trial for record in whole.playoff]


def test_rounds_after_a_search_that_went_on_have_a_share_of_all_its_time(tmp_path: Path) -> None:
    earlier, whole = interrupt(tmp_path)
    *before, last = earlier.records
    known = replace(earlier, told=tuple(before))
    with Journal(tmp_path / "journal.jsonl") as journal:
        end, _ = play_to_end(journal, earlier=known, added=(last,), elapsed_s=0.001)
    assert end.playoff[0].trial.timed_steps < whole.playoff[0].trial.timed_steps


def test_why_launches_follow_each_other_is_said_once(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        _, seen = play_to_end(journal, apart="each of them takes several hosts")
    assert seen.notes == [
        "The playoff launches run one after the other: each of them takes several hosts."
    ]


def test_a_playoff_that_time_has_no_room_for_is_not_announced(tmp_path: Path) -> None:
    budget = TimeBudget(whole_s=100.0, began_s=0.0, clock=lambda: 96.0)
    with open_journal(tmp_path) as journal:
        end, seen = play_to_end(journal, apart="of a reason", budget=budget)
    assert (end.playoff, seen.notes) == ((), [])
    assert end.notes[0].endswith(": 4 s remain.")  # of 100 s, the last 3 s without launches


def test_memory_that_was_not_seen_to_be_enough_is_a_reason(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        _, seen = play_to_end(journal)
    assert [note.partition(": ")[2] for note in seen.notes] == [
        "it is not known that they fit in memory side by side."
    ]


def test_nothing_is_said_of_launches_that_are_not_made(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        play_to_end(journal)
        _, seen = play_to_end(journal, earlier=journal.read())
    assert seen.notes == []
