from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    Measurement,
    Record,
    SearchSpace,
    Trial,
    build_space,
)
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.results import (
    JournalContents,
    OpenFolder,
    ResultsPaths,
    open_folder,
    read_journal,
)
from autoconf_launch.launcher.tuning import open_space
from autoconf_launch.launcher.tuning.prepared import space_digest

from ..controlled import PRINT

BATCH = 8


def space(*sizes: int, stages: tuple[int, ...] = (0,)) -> SearchSpace:
    """Listed micro-batches, the first of them the user's, at a global batch of 8 on 2 ranks."""
    first = Layout(
        micro_batch=sizes[0], accumulation=BATCH // 2 // sizes[0], data_parallel=2, zero_stage=0
    )
    choices = (
        KnobChoice("zero_stage", stages, ChoiceKind.LISTED),
        KnobChoice("micro_batch", sizes, ChoiceKind.LISTED),
    )
    rule = GlobalBatchRule(pinned=BATCH)
    return build_space(Candidate(layout=first), choices, rule, AutotuningSettings())


def records(of: SearchSpace) -> tuple[Record, ...]:
    candidates = [of.baseline, *(of.table.row(i) for i in range(len(of.table)))]
    return tuple(
        Record(
            trial=Trial(
                number=number,
                name=baseline_trial(one).name,
                candidate=one,
                space=f"z{one.layout.zero_stage}",
            ),
            outcome=Measurement(step_s=(1.0, 1.0), samples_per_step=BATCH, world_size=2),
            wall_s=1.0,
        )
        for number, one in enumerate(candidates)
    )


class Folder:
    """A results folder that is opened anew for each session."""

    def __init__(self, path: Path) -> None:
        self.paths = ResultsPaths(results=path / "results", exps=path / "exps")
        self.said: list[str] = []

    def listen(self, event: Event) -> None:
        assert isinstance(event, Note)
        self.said.append(event.text)

    def session(
        self, of: SearchSpace, then: Callable[[OpenFolder], None] = lambda folder: None
    ) -> JournalContents:
        """Open it to search this space; what counts there."""
        opened: AbstractContextManager[OpenFolder] = open_folder(self.paths, PRINT, fresh=False)
        with opened as folder:
            contents = open_space(folder, of, self.listen)
            then(folder)
        return contents


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def measure(*told: Record) -> Callable[[OpenFolder], None]:
    def write(folder: OpenFolder) -> None:
        for record in told:
            folder.journal.write_record(record)

    return write


def names(found: tuple[Record, ...]) -> list[str]:
    return [record.trial.name for record in found]


SMALL, LARGE = space(1, 2), space(1, 2, 4)


def test_the_same_space_goes_on_without_a_word(folder: Folder) -> None:
    assert folder.session(SMALL, measure(*records(SMALL))).records == ()
    assert folder.session(SMALL).records == records(SMALL)
    assert folder.said == []


def test_a_larger_space_uses_all_that_was_measured(folder: Folder) -> None:
    folder.session(SMALL, measure(*records(SMALL)))
    assert folder.session(LARGE).records == records(SMALL)
    assert folder.said == [
        "What is searched has changed; all 2 earlier trials are used again.",
    ]


def test_what_is_no_longer_searched_stays_in_the_journal_alone(folder: Folder) -> None:
    folder.session(LARGE, measure(*records(LARGE)))
    contents = folder.session(SMALL)
    assert names(contents.records) == ["z0_gas4_tmbspg1", "z0_gas2_tmbspg2"]
    assert names(contents.others) == ["z0_gas1_tmbspg4"]
    assert read_journal(folder.paths.journal) == contents
    assert folder.said == [
        "What is searched has changed: 2 of 3 earlier trials are used again; 1 not, as "
        "micro_batch 4 is no longer searched; the journal keeps them.",
    ]


def test_several_values_that_are_no_longer_searched_are_named_together(folder: Folder) -> None:
    folder.session(LARGE, measure(*records(LARGE)))
    folder.session(space(1))
    assert "as micro_batch 2, micro_batch 4 are no longer searched" in folder.said[0]


def test_a_stage_that_is_no_longer_searched_is_named(folder: Folder) -> None:
    both = space(1, 2, stages=(0, 1))
    folder.session(both, measure(*records(both)))
    folder.session(SMALL)
    assert "as zero_stage 1 is no longer searched" in folder.said[0]


def test_where_every_value_is_left_their_combinations_are_what_is_gone(folder: Folder) -> None:
    both = space(1, 2, stages=(0, 1))
    *kept, last = records(both)
    folder.session(both, measure(*kept, last))
    fewer = SearchSpace(
        baseline=both.baseline,
        table=both.table.take(range(len(both.table) - 1)),
        usual_C=both.usual_C[:-1],
    )
    folder.session(fewer)
    assert "as their combination of values is no longer searched" in folder.said[0]


def test_what_comes_back_into_the_space_counts_again(folder: Folder) -> None:
    folder.session(LARGE, measure(*records(LARGE)))
    folder.session(SMALL)
    contents = folder.session(LARGE)
    assert set(names(contents.records)) == set(names(records(LARGE)))
    assert contents.others == ()


def test_trial_0_is_the_present_baseline_alone(folder: Folder) -> None:
    folder.session(LARGE, measure(*records(LARGE)))
    contents = folder.session(space(2, 1, 4))
    numbers = {record.trial.name: record.trial.number for record in contents.records}
    assert numbers["z0_gas2_tmbspg2"] == 0
    assert sorted(numbers.values()) == [0, 2, 3]


def test_rounds_and_soaks_of_another_space_do_not_count(folder: Folder) -> None:
    first = records(SMALL)[0]
    again = replace(
        first, trial=replace(first.trial, name=f"{first.trial.name}_final", final=True)
    )
    folder.session(SMALL, measure(*records(SMALL), again))
    assert len(folder.session(SMALL).finals) == 1
    assert folder.session(LARGE).finals == ()
    assert folder.session(LARGE).finals == ()


def test_a_journal_that_does_not_say_what_was_searched_counts_as_far_as_it_fits(
    folder: Folder,
) -> None:
    with open_folder(folder.paths, PRINT, fresh=False) as opened:
        measure(*records(SMALL))(opened)
    assert folder.session(LARGE).records == records(SMALL)
    assert folder.said == []


def test_spaces_are_the_same_where_their_candidates_are() -> None:
    assert space_digest(space(1, 2)) == space_digest(space(1, 2))
    assert len({space_digest(one) for one in (SMALL, LARGE, space(2, 4), space(2, 1))}) == 4
