"""A search on this machine, from its folder to its final results. Not: a run (local_runs)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

from autoconf_launch.core import ConfigError, NothingFeasibleError

from ..events import Note
from ..planner.base_config_file import write_base_config
from ..search_report.final_results import write_final_results
from ..search_report.top_text import top_text
from ..trackers import check_tracking
from ..views.lines import LinesView
from .candidate_file import candidate_document
from .candidates import SearchCandidate
from .flags import SearchRequest
from .folder import SearchFolder
from .local_runs import LocalRuns
from .outcome import outcome_of
from .prepare import Prepared
from .pretraining import tracking_of
from .result_document import result_document

_NEEDED = "transformers"


def run_search(prepared: Prepared, request: SearchRequest) -> Iterator[str]:
    """Write, run, and report; lines on single runs go to standard error.

    Raises:
        ConfigError: transformers or a tracker's package is missing.
        NothingFeasibleError: no candidate could be measured; its results are written by then.
    """
    settings, question = prepared.settings, prepared.question
    folder = SearchFolder(settings.train.logs.absolute())
    view = LinesView(_to_stderr, quiet=request.quiet, level="info")
    for note in prepared.notes:
        view.handle(Note(text=note))
    if not settings.runs_training:
        write_base_config(question.base, folder.base(question))
        yield f"Base configuration: {folder.base(question)} (run_training_hp_search is False)"
        return
    if find_spec(_NEEDED) is None:
        raise ConfigError(
            f"cluster_type=local builds models with {_NEEDED}, which is not installed here; run "
            "pip install 'autoconf-launch[search]'."
        )

    check_tracking(tracking_of(settings.wandb))

    def write_files(candidates: tuple[SearchCandidate, ...]) -> None:
        write_base_config(question.base, folder.base(question))
        folder.clear_candidates()
        for one in candidates:
            write_base_config(candidate_document(question, one, 1), folder.candidate(one.name))

    runs = LocalRuns(prepared, folder, view.handle)
    done = runs.run(write_files, fresh=request.fresh)
    outcome = outcome_of(prepared, done)
    written = write_final_results(folder.logs, outcome, top=settings.train.top_n)
    if not any(run.step_s for run in outcome.runs):
        raise NothingFeasibleError(
            f"{done.stop.sentence} See {written[0].parent}.", done.stop.log_tail
        )
    if request.json:
        yield result_document(question.name, outcome)
        return
    yield top_text(outcome, settings.train.top_n).rstrip("\n")
    yield f"Results: {written[0].parent}"


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
