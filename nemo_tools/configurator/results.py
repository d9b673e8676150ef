"""Runs of ``AutoConfigurator``: here, or elsewhere in the folders of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.space import FailedTrial, Measurement
from autoconf_launch.core import ConfigError, Layout, RawConfig
from autoconf_launch.launcher.estimates import ChosenPrice
from autoconf_launch.launcher.results import read_journal

from ..candidate_grids import NemoCandidate
from ..report import (
    SearchOutcome,
    SearchRun,
    read_run,
    write_final_results,
)
from ..search import (
    CandidateList,
    HpRuns,
    HpSearch,
    OurRanks,
    SearchCandidate,
    SearchFolder,
    SearchQuestion,
    batch_path,
    local_request,
    measured_run,
    outcome_of,
    question_outcome,
    require_room,
    require_transformers,
    split_runnable,
    stderr_view,
)

_DEGREE = re.compile(r"_(tp|pp|cp|ep|mbs|vp|act_ckpt|num_mbs_act|act_per_pipe)_(\d+|None)(?=_|$)")
_NEEDED = {"tp", "pp", "mbs"}


def expected_run(
    question: SearchQuestion, name: str, point: NemoCandidate, config: RawConfig
) -> SearchRun:
    """A run to look for."""
    batch = config.get(batch_path(config)) or question.global_batch
    return SearchRun(name=name, point=point, global_batch=batch, config=config)


def read_runs(
    question: SearchQuestion,
    logs: Path,
    expected: Iterable[SearchRun],
    *,
    log_prefix: str,
    price: ChosenPrice | None,
    with_others: bool,
) -> SearchOutcome:
    """Every expected run and, ``with_others``, every other run in the folder."""
    known = {one.name: one for one in expected}
    others = _others(logs, known, question) if with_others else ()
    wanted = [*known.values(), *others]
    return question_outcome(
        question,
        (_run(question, logs, one, log_prefix) for one in wanted),
        nodes=question.nodes,
        usd_per_gpu_hour=price.usd_per_gpu_hour if price else None,
        price=price.how if price else "",
    )


def point_of(name: str) -> NemoCandidate | None:
    """Degrees in a run's name; None if there are too few."""
    found = {key: int(value) if value.isdigit() else None for key, value in _DEGREE.findall(name)}
    if any(found.get(key) is None for key in _NEEDED):
        return None
    layout = Layout(
        tensor_parallel=found["tp"] or 1,
        pipeline_parallel=found["pp"] or 1,
        context_parallel=found.get("cp") or 1,
        expert_parallel=found.get("ep") or 1,
        micro_batch=found["mbs"] or 1,
    )
    return NemoCandidate(
        layout=layout,
        virtual=found.get("vp"),
        recompute_layers=found.get("act_ckpt"),
        recompute_micro_batches=found.get("num_mbs_act"),
        recompute_layers_per_pipeline=found.get("act_per_pipe"),
    )


def _others(
    logs: Path, known: Mapping[str, SearchRun], question: SearchQuestion
) -> Iterator[SearchRun]:
    folders = sorted(path for path in logs.iterdir() if path.is_dir()) if logs.is_dir() else []
    for folder in folders:
        point = None if folder.name in known else point_of(folder.name)
        if point is not None:
            yield expected_run(question, folder.name, point, question.base)


def _run(question: SearchQuestion, logs: Path, run: SearchRun, log_prefix: str) -> SearchRun:
    outcome = read_run(
        logs / run.name,
        log_prefix,
        samples=run.global_batch,
        gpus=question.gpus,
        gpu_bytes=int(question.model.asked.gpu_memory_gb * 1e9),
    )
    if isinstance(outcome, FailedTrial):
        return replace(run, failure=outcome.failure)
    assert isinstance(outcome, Measurement)
    return measured_run(run, (outcome,))


def run_here(
    question: SearchQuestion, points: Iterable[SearchCandidate], configs: Mapping[str, RawConfig]
) -> SearchOutcome:
    """Run candidates that fit this machine, write all results, and say why others did not start.

    Lines on single runs go to standard error.

    Args:
        question: of one node.
        points: candidates in the order of the runs.
        configs: each one's whole training, for the reports.

    Raises:
        ConfigError: transformers is missing, there are several nodes, or nothing can run here.
        NothingFeasibleError: this machine cannot hold the model.
        HardwareError: this machine has not as many GPUs.
    """
    found = _runnable(question, points)
    _check(question, found)
    folder, listener = SearchFolder(question.scope.logs), stderr_view().handle
    launch = replace(local_request(question.gpus), argv=("AutoConfigurator", question.name))
    ranks = OurRanks(question, folder, launch)
    search = HpSearch(points=found.candidates, runner=ranks, limits=ranks.limits)
    outcome = _outcome(question, found, search.run(listener, fresh=False), configs)
    write_final_results(folder.logs, outcome)
    return outcome


def seen_here(
    question: SearchQuestion, points: Iterable[SearchCandidate], configs: Mapping[str, RawConfig]
) -> SearchOutcome | None:
    """Outcome of this machine's earlier runs, from the journal; None if there are none."""
    journal = SearchFolder(question.scope.logs).runs.journal
    if not journal.is_file():
        return None
    contents, found = read_journal(journal), _runnable(question, points)
    hardware = contents.fingerprint.hardware if contents.fingerprint else ()
    # each with the ZeRO stage that was chosen for it
    layouts = {record.trial.name: record.trial.candidate.layout for record in contents.records}
    done = HpRuns(
        points=tuple(
            replace(one, point=replace(one.point, layout=layouts.get(one.name, one.layout)))
            for one in found.candidates
        ),
        records=contents.records,
        finals=contents.finals,
        device=hardware[0].partition(",")[0] if hardware else "",
    )
    return _outcome(question, found, done, configs)


def _outcome(
    question: SearchQuestion,
    found: CandidateList,
    done: HpRuns[SearchCandidate],
    configs: Mapping[str, RawConfig],
) -> SearchOutcome:
    outcome = outcome_of(question, found, done, question.notes)
    runs = (replace(run, config=configs.get(run.name, run.config)) for run in outcome.runs)
    return replace(outcome, runs=tuple(runs))


def _runnable(question: SearchQuestion, points: Iterable[SearchCandidate]) -> CandidateList:
    kept, rejected = split_runnable(question, points)
    count = len(kept) + len(rejected)
    return CandidateList(candidates=kept, nodes=question.nodes, found=count, rejected=rejected)


def _check(question: SearchQuestion, found: CandidateList) -> None:
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
    require_transformers("run()")
    require_room(question)
