"""The training half of ``search``: the fastest layout of a model, by short real runs.

On a cluster each run is a job script; these are only written where Slurm or Base Command is not
there.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from autoconf_launch.autotuner.search import StopKind
from autoconf_launch.core import ConfigError, NothingFeasibleError
from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.export import export_base
from autoconf_launch.launcher.hosts import is_slurm_here
from autoconf_launch.launcher.report import stop_sentence
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import write_answer

from ..report import (
    FINAL_RESULTS,
    SearchOutcome,
    SearchRun,
    failure_kind,
    named_failure,
    summary_lines,
    top_text,
    write_final_results,
)
from .candidate_file import SearchFolder, candidate_document, write_documents
from .candidates import SearchCandidate
from .cluster_runs import collect_runs, run_on_cluster, submit_runs
from .flags import SearchRequest
from .jobs import SHEBANG, job_text
from .local_runs import LocalRuns, require_transformers, stderr_view
from .outcome import DoneRuns, outcome_of
from .prepare import (
    SEARCH_SCHEMA_VERSION,
    Prepared,
    candidate_table,
    dry_run_document,
    dry_run_text,
)
from .question import RECIPE, SearchQuestion
from .settings import ClusterKind
from .this_machine import require_room


def search_training(
    prepared: Prepared, request: SearchRequest, words: tuple[str, ...]
) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    ``words`` are the whole command line, which a last job repeats to collect.

    Raises:
        ConfigError: a file cannot be written, or a package is missing.
        NothingFeasibleError: no candidate could be measured; its results are written by then.
    """
    if request.dry_run:
        if request.json:
            yield dry_run_document(prepared)
        else:
            yield from dry_run_text(prepared, _list_length(prepared, request))
    elif prepared.machines is not None:
        yield from _search_cluster(prepared, request, words)
    elif request.submit_only or request.collect:
        raise ConfigError(
            "--submit-only and --collect are for NeMo's runs on Slurm; runs of our runtime are "
            "watched: omit them, and the same command goes on after an end."
        )
    elif _is_engine_here(prepared):
        yield from _run_search(prepared, request)
    else:
        yield from _write_search(prepared, request, words)


def _is_engine_here(prepared: Prepared) -> bool:
    """True if the backend of the runs answers on this machine."""
    settings = prepared.settings
    if settings.cluster.kind is ClusterKind.LOCAL or not settings.runs_training:
        return True
    is_bcm = settings.cluster.kind is ClusterKind.BCM
    return is_slurm_here() if is_bcm else shutil.which("bcprun") is not None


def _list_length(prepared: Prepared, request: SearchRequest) -> int:
    """Number of candidates to list; 0: all."""
    return prepared.settings.train.top_n if request.top is None else request.top


_EACH = {
    ClusterKind.BCM: 'sbatch --parsable "$job" || exit 1',
    ClusterKind.BCP: 'bash "$job" || echo "failed: $job" >&2',
}
_ABOUT_OURS = {
    ClusterKind.BCM: "Runs the search where Slurm answers, each run as a job.",
    ClusterKind.BCP: "Runs the search inside Base Command, one run after the other.",
}
_ABOUT = {
    ClusterKind.BCM: "Submits every job of this search to Slurm, the most promising first.",
    ClusterKind.BCP: "Runs every job of this search in this allocation, one after the other.",
}


def _search_cluster(
    prepared: Prepared, request: SearchRequest, words: tuple[str, ...]
) -> Iterator[str]:
    """Write all files of the search; where its engine answers, run or queue them, too.

    Raises:
        ConfigError: a file cannot be written, a value cannot stand in a job, or Slurm refuses it.
        NothingFeasibleError: no run could be measured; the results are written by then.
    """
    folder = SearchFolder(prepared.settings.train.logs)
    kind = prepared.settings.cluster.kind
    if request.collect:
        yield from _report(prepared, request, folder, collect_runs(prepared, folder))
        return
    if request.submit_only and (kind is ClusterKind.BCP or not is_slurm_here()):
        raise ConfigError("--submit-only needs cluster_type=bcm and a Slurm that answers sinfo.")
    _write_files(prepared, folder)
    if request.submit_only:
        *runs, last = submit_runs(prepared, folder, words)
        yield f"{len(runs)} runs are queued; job {last} writes {folder.logs / FINAL_RESULTS} last."
    elif _is_engine_here(prepared):
        view = stderr_view(quiet=request.quiet)
        for note in prepared.notes:
            view.handle(Note(text=note))
        done = run_on_cluster(prepared, folder, view.handle, fresh=request.fresh)
        yield from _report(prepared, request, folder, done)
    elif request.json:
        yield _cluster_document(prepared, folder)
    else:
        yield f"{candidate_table(prepared.found, _list_length(prepared, request))}\n"
        yield _cluster_text(prepared, folder)


def _write_search(
    prepared: Prepared, request: SearchRequest, words: tuple[str, ...]
) -> Iterator[str]:
    """Write a search of our own runtime for a cluster that does not answer here.

    Raises:
        ConfigError: a file cannot be written.
    """
    folder, found = SearchFolder(prepared.settings.train.logs.absolute()), prepared.found
    write_documents(prepared.question, folder, found.candidates)
    command = shlex.join(("autoconf-launch", "search", *words))
    about = _ABOUT_OURS[prepared.settings.cluster.kind]
    text = f"{SHEBANG}\n# {about}\ncd {shlex.quote(str(Path.cwd()))} || exit\nexec {command}\n"
    folder.files.write(folder.submit_all, text)
    if request.json:
        yield _cluster_document(prepared, folder)
        return
    yield f"{candidate_table(found, _list_length(prepared, request))}\n"
    yield from (f"Note: {note}" for note in prepared.notes)
    yield f"Base configuration: {folder.base(prepared.question)}"
    yield f"{len(found.candidates)} candidate configurations: {folder.candidate('').parent}"
    yield f"{about[:-1]}: bash {shlex.quote(str(folder.submit_all))}"


def _write_files(prepared: Prepared, folder: SearchFolder) -> None:
    question, found = prepared.question, prepared.found
    jobs = {one.name: job_text(question, one, found.nodes) for one in found.candidates}
    write_documents(question, folder, found.candidates)
    if RECIPE in question.base:
        _write_scripts(prepared, folder)
    for name, text in jobs.items():
        folder.files.write(folder.job(name), text)
        folder.files.make_below(folder.run(name))  # Slurm opens a job's log there before it runs
    folder.files.write(folder.submit_all, _submit_all(prepared, folder))


def _write_scripts(prepared: Prepared, folder: SearchFolder) -> None:
    for one in prepared.found.candidates:
        document = candidate_document(prepared.question, one, prepared.found.nodes)
        folder.files.write(folder.script(one.name), export_base(document, "nemo2").text)


def _submit_all(prepared: Prepared, folder: SearchFolder) -> str:
    kind = prepared.settings.cluster.kind
    jobs = _lines(prepared.found.candidates, folder)
    return f"{SHEBANG}\n# {_ABOUT[kind]}\nfor job in \\\n{jobs}\ndo\n  {_EACH[kind]}\ndone\n"


def _lines(candidates: Iterable[SearchCandidate], folder: SearchFolder) -> str:
    return " \\\n".join(f"  {shlex.quote(str(folder.job(one.name)))}" for one in candidates)


def _cluster_text(prepared: Prepared, folder: SearchFolder) -> str:
    question, count = prepared.question, len(prepared.found.candidates)
    kind = prepared.settings.cluster.kind
    start = "Submit all" if kind is ClusterKind.BCM else "In the allocation, run all"
    notes = "".join(f"Note: {note}\n" for note in prepared.notes)
    return (
        f"{notes}{_expected_text(prepared)}Base configuration: {folder.base(question)}\n"
        f"{count} candidate configurations: {folder.candidate('').parent}\n"
        f"{count} job scripts: {folder.job('').parent}\n"
        f"{start}: bash {shlex.quote(str(folder.submit_all))}"
    )


def _expected_text(prepared: Prepared) -> str:
    """The planner's prediction for the first candidate; empty if it cannot predict."""
    first = prepared.found.candidates[0]
    if first.step_s is None:
        return ""
    return f"Expected to be the fastest: {first.name}, {first.step_s:.4g} s per step\n"


def _cluster_document(prepared: Prepared, folder: SearchFolder) -> str:
    question = prepared.question
    document = {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": question.name,
        "notes": list(prepared.notes),
        "base_config": str(folder.base(question)),
        "submit_all": str(folder.submit_all),
        "candidates": [
            {
                "name": one.name,
                "config": str(folder.candidate(one.name)),
                "job": str(folder.job(one.name)) if prepared.machines else None,
                "run_folder": str(folder.run(one.name)),
            }
            for one in prepared.found.candidates
        ],
    }
    return json.dumps(document, indent=2)


def result_document(name: str, outcome: SearchOutcome) -> str:
    """Every run, measured ones first and the fastest of them on top."""
    measured = sorted((run for run in outcome.runs if run.step_s), key=lambda run: run.step_s or 0)
    failed = [run for run in outcome.runs if not run.step_s]
    document = {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": name,
        "nodes": outcome.nodes,
        "gpus_per_node": outcome.gpus_per_node,
        "best": measured[0].name if measured else None,
        "notes": list(outcome.notes),
        "runs": [_entry(run) for run in (*measured, *failed)],
    }
    return json.dumps(document, indent=2)


def _base_alone_document(name: str, base_config: Path) -> str:
    """JSON document if nothing is searched: only the base configuration."""
    document = {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": name,
        "base_config": str(base_config),
    }
    return json.dumps(document, indent=2)


def _entry(run: SearchRun) -> dict[str, object]:
    layout = run.point.layout
    return {
        "name": run.name,
        "tensor_parallel": layout.tensor_parallel,
        "pipeline_parallel": layout.pipeline_parallel,
        "context_parallel": layout.context_parallel,
        "expert_parallel": layout.expert_parallel,
        "micro_batch": layout.micro_batch,
        "recompute_layers": run.point.recompute_layers,
        "knobs": dict(run.knobs),
        "global_batch": run.global_batch,
        "steps": run.steps if run.extrapolated_from is None else 0,
        "extrapolated_from_micro_batches": run.extrapolated_from,
        "step_s": run.step_s,
        "step_spread_s": run.step_spread_s,
        "peak_bytes": run.peak_bytes,
        "failure": None if run.failure is None else failure_kind(run.failure),
        "detail": None if run.failure is None else run.failure.detail,
    }


def _run_search(prepared: Prepared, request: SearchRequest) -> Iterator[str]:
    """Write, run, and report; lines on single runs go to standard error.

    Raises:
        ConfigError: transformers or a tracker's package is missing.
        NothingFeasibleError: this machine cannot hold the model; or no candidate could be
            measured, and its results are written by then.
    """
    settings, question = prepared.settings, prepared.question
    folder = SearchFolder(settings.train.logs.absolute())
    view = stderr_view(quiet=request.quiet)
    if settings.runs_training:
        _require_all(prepared)
    else:
        folder.write_config(folder.base(question), question.base)
    runs = LocalRuns(prepared, folder, view.handle) if settings.runs_training else None
    for note in prepared.notes:  # once the folder is known to be writable
        view.handle(Note(text=note))
    if runs is None:
        yield _base_alone(question, folder, json=request.json)
        return

    write = partial(write_documents, question, folder)
    yield from _report(prepared, request, folder, runs.run(write, fresh=request.fresh))


def _report(
    prepared: Prepared, request: SearchRequest, folder: SearchFolder, done: DoneRuns
) -> Iterator[str]:
    """Write the tables of what was run, and print the best of it.

    Raises:
        NothingFeasibleError: no candidate could be measured; the results are written.
    """
    question = prepared.question
    outcome = outcome_of(prepared, done)
    written = write_final_results(folder.logs, outcome, top=prepared.settings.train.top_n)
    if not any(run.step_s for run in outcome.runs):
        sentence = _nothing_measured(done, outcome, written[0].parent)
        write_answer(folder.runs, sentence)
        raise NothingFeasibleError(sentence, done.stop.log_tail)
    lines = (
        top_text(outcome, _list_length(prepared, request)).rstrip("\n"),
        *summary_lines(outcome, {one.name for one in prepared.found.candidates}),
        f"Results: {written[0].parent}",
    )
    write_answer(folder.runs, "\n".join(lines))
    yield from (result_document(question.name, outcome),) if request.json else lines


def _base_alone(question: SearchQuestion, folder: SearchFolder, *, json: bool) -> str:
    """Answer if run_training_hp_search is False: the base configuration that was written."""
    path = folder.base(question)
    if json:
        return _base_alone_document(question.name, path)
    return f"Base configuration: {path} (run_training_hp_search is False)"


def _require_all(prepared: Prepared) -> None:
    """See that runs can be made, before anything is written."""
    require_transformers("search")
    if prepared.settings.cluster.kind is ClusterKind.LOCAL:
        require_room(prepared.question)
    check_tracking(prepared.settings.tracking)


def _nothing_measured(done: DoneRuns, outcome: SearchOutcome, folder: Path) -> str:
    """Why, by the last run that was started, in the words of its table."""
    sentence = stop_sentence(done.stop)
    if done.stop.kind is not StopKind.NOTHING_FITS:
        started = {record.trial.name for record in done.records}
        last = [run for run in outcome.runs if run.name in started and run.failure][-1]
        assert last.failure is not None
        why = named_failure(last.failure)
        sentence = f"No configuration could be measured; the last, {last.name}: {why}"
    return f"{sentence.rstrip('.')}. See {folder}."
