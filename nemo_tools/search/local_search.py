"""A search on this machine, from its folder to its final results. Not: a run (local_runs)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from autoconf_launch.autotuner.search import StopKind
from autoconf_launch.core import ConfigError, NothingFeasibleError
from autoconf_launch.launcher.estimates import write_base_config
from autoconf_launch.launcher.events import Note
from autoconf_launch.launcher.report import LinesView, stop_sentence
from autoconf_launch.launcher.trackers import check_tracking

from ..report import SearchOutcome, SearchRun, top_text, write_final_results
from .candidate_file import SearchFolder, write_documents
from .flags import SearchRequest
from .local_runs import LocalRuns, tracking_of
from .outcome import DoneRuns, outcome_of
from .prepare import SEARCH_SCHEMA_VERSION, Prepared
from .question import SearchQuestion
from .this_machine import require_room


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


def base_alone_document(name: str, base_config: Path) -> str:
    """Where nothing is searched: the file alone."""
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
        "failure": None if run.failure is None else run.failure.kind.value,
        "detail": None if run.failure is None else run.failure.detail,
    }


_NEEDED = "transformers"


def run_search(prepared: Prepared, request: SearchRequest) -> Iterator[str]:
    """Write, run, and report; lines on single runs go to standard error.

    Raises:
        ConfigError: transformers or a tracker's package is missing.
        NothingFeasibleError: this machine cannot hold the model; or no candidate could be
            measured, and its results are written by then.
    """
    settings, question = prepared.settings, prepared.question
    folder = SearchFolder(settings.train.logs.absolute())
    view = LinesView(_to_stderr, quiet=request.quiet, level="info")
    if settings.runs_training:
        _require_all(prepared)
    else:
        write_base_config(question.base, folder.base(question))
    runs = LocalRuns(prepared, folder, view.handle) if settings.runs_training else None
    for note in prepared.notes:  # once the folder is known to be writable
        view.handle(Note(text=note))
    if runs is None:
        yield _base_alone(question, folder, json=request.json)
        return

    write = partial(write_documents, question, folder)
    done = runs.run(write, fresh=request.fresh)
    outcome = outcome_of(prepared, done)
    written = write_final_results(folder.logs, outcome, top=settings.train.top_n)
    if not any(run.step_s for run in outcome.runs):
        sentence = _nothing_measured(done, outcome, written[0].parent)
        raise NothingFeasibleError(sentence, done.stop.log_tail)
    if request.json:
        yield result_document(question.name, outcome)
        return
    yield top_text(outcome, settings.train.top_n).rstrip("\n")
    yield f"Results: {written[0].parent}"


def _base_alone(question: SearchQuestion, folder: SearchFolder, *, json: bool) -> str:
    """What was written where run_training_hp_search is False."""
    path = folder.base(question)
    if json:
        return base_alone_document(question.name, path)
    return f"Base configuration: {path} (run_training_hp_search is False)"


def _require_all(prepared: Prepared) -> None:
    """See that runs can be made, before anything is written."""
    if find_spec(_NEEDED) is None:
        raise ConfigError(
            f"cluster_type=local builds models with {_NEEDED}, which is not installed here; run "
            "pip install 'autoconf-launch[search]'."
        )
    require_room(prepared.question)
    check_tracking(tracking_of(prepared.settings.wandb))


def _nothing_measured(done: DoneRuns, outcome: SearchOutcome, folder: Path) -> str:
    """Why, by the last run that was started, in the words of its table."""
    sentence = stop_sentence(done.stop)
    if done.stop.kind is not StopKind.NOTHING_FITS:
        started = {record.trial.name for record in done.records}
        last = [run for run in outcome.runs if run.name in started and run.failure][-1]
        assert last.failure is not None
        kind, detail = last.failure.kind.value, last.failure.detail
        sentence = f"No configuration could be measured; the last, {last.name}: {kind}, {detail}"
    return f"{sentence.rstrip('.')}. See {folder}."


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
