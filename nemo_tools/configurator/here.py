"""Candidates of ``AutoConfigurator`` run on this machine, by the parts of ``search``.

Not: runs made elsewhere (results).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from autoconf_launch.autotuner.search import StopKind, StopReason
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.report import LinesView
from autoconf_launch.launcher.results import JournalContents, read_journal

from ..report import SearchOutcome, write_final_results
from ..search import (
    CandidateList,
    DoneRuns,
    LocalRuns,
    Prepared,
    Rejected,
    SearchCandidate,
    SearchFolder,
    SearchQuestion,
    outcome_of,
    require_room,
    why_not_here,
    write_documents,
)

_NEEDED = "transformers"


def run_here(
    question: SearchQuestion, points: Iterable[SearchCandidate], configs: Mapping[str, RawConfig]
) -> SearchOutcome:
    """Run what this machine can, write all results, and say why others were not started.

    Lines on single runs go to standard error.

    Args:
        question: of one node.
        points: candidates in the order in which they are to run.
        configs: each one's whole training, for the reports.

    Raises:
        ConfigError: transformers is missing, there are several nodes, or nothing can run here.
        NothingFeasibleError: this machine cannot hold the model.
        HardwareError: this machine has not as many GPUs.
    """
    prepared = _prepared(question, points)
    _check(prepared)
    folder = SearchFolder(question.settings.train.logs)
    view = LinesView(_to_stderr, quiet=False, level="info")
    write = partial(write_documents, question, folder)
    done = LocalRuns(prepared, folder, view.handle).run(write, fresh=False)
    found = _with_configs(outcome_of(prepared, done), configs)
    write_final_results(folder.logs, found, top=question.settings.train.top_n)
    return found


def seen_here(
    question: SearchQuestion, points: Iterable[SearchCandidate], configs: Mapping[str, RawConfig]
) -> SearchOutcome | None:
    """What earlier runs on this machine left in the journal; None where there were none.

    Raises:
        ResultsFolderError: the journal cannot be read.
    """
    journal = SearchFolder(question.settings.train.logs).runs.journal
    if not journal.is_file():
        return None
    contents, prepared = read_journal(journal), _prepared(question, points)
    done = DoneRuns(
        candidates=tuple(_as_it_ran(one, contents) for one in prepared.found.candidates),
        records=contents.records,
        finals=contents.finals,
        ruled_out=(),
        too_slow=(),
        stop=StopReason(kind=StopKind.EXPLORED),
    )
    return _with_configs(outcome_of(prepared, done), configs)


def _with_configs(found: SearchOutcome, configs: Mapping[str, RawConfig]) -> SearchOutcome:
    runs = (replace(run, config=configs.get(run.name, run.config)) for run in found.runs)
    return replace(found, runs=tuple(runs))


def _prepared(question: SearchQuestion, points: Iterable[SearchCandidate]) -> Prepared:
    """The candidates, apart from those that this machine cannot run."""
    all_of_them = tuple(points)
    whys = [why_not_here(question, one) for one in all_of_them]
    pairs = tuple(zip(all_of_them, whys, strict=True))
    found = CandidateList(
        candidates=tuple(one for one, why in pairs if not why),
        nodes=question.nodes,
        found=len(all_of_them),
        rejected=tuple(Rejected(candidate=one, why=why) for one, why in pairs if why),
    )
    return Prepared(question=question, found=found, machines=None, notes=question.notes)


def _check(prepared: Prepared) -> None:
    question, found = prepared.question, prepared.found
    if question.nodes > 1:
        raise ConfigError(
            f"The recipe is for {question.nodes} nodes, and run() has this one; run the "
            "configurations of generate_configs() there, and get_results() reads their logs."
        )
    if not found.candidates:
        first = found.rejected[0]
        raise ConfigError(
            f"None of {found.found} candidates can run on this machine, such as "
            f"{first.candidate.name}: {first.why}; give sizes that can."
        )
    if find_spec(_NEEDED) is None:
        raise ConfigError(
            f"run() builds models with {_NEEDED}, which is not installed; run "
            "pip install 'autoconf-launch[search]'."
        )
    require_room(question)


def _as_it_ran(one: SearchCandidate, contents: JournalContents) -> SearchCandidate:
    """With the ZeRO stage that was chosen for it."""
    layouts = {record.trial.name: record.trial.candidate.layout for record in contents.records}
    layout = layouts.get(one.name, one.layout)
    return replace(one, point=replace(one.point, layout=layout))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
