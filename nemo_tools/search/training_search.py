"""The training half of ``search``: the fastest layout of a model, by short real runs.

On a cluster each run is a job script; these are only written if Slurm or Base Command is
missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from autoconf_launch.autotuner.search import StopKind
from autoconf_launch.core import GIB, ConfigError, NothingFeasibleError
from autoconf_launch.launcher.events import Note
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
from ..search_flags import SearchRequest
from .candidate_file import SearchFolder, write_documents
from .candidates import SearchCandidate
from .hp_search import HpRuns, HpSearch
from .job_runs import (
    NEVER_S,
    SLURM_SPARE_S,
    JobRunner,
    are_run_here,
    run_jobs,
    submit_all,
    submit_collection,
)
from .jobs import SHEBANG, NemoJobs, job_text
from .our_ranks import OurRanks, require_transformers, stderr_view
from .outcome import outcome_of, training_limits
from .prepare import Prepared, first_rows, json_document
from .question import whose_grid
from .settings import ClusterKind
from .this_machine import require_room

_HEADERS = ("#", "tp", "pp", "cp", "ep", "mbs", "vp", "gas", "recompute", "s/step", "GiB", "name")
_MESH = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
_LAYOUT = (*_MESH[:2], "virtual_pipeline", *_MESH[2:], "data_parallel", "micro_batch")
_ABOUT_OURS = {
    ClusterKind.BCM: "Runs the search where Slurm answers, each run as a job.",
    ClusterKind.BCP: "Runs the search inside Base Command, one run after the other.",
}


def search_training(
    prepared: Prepared, request: SearchRequest, words: tuple[str, ...]
) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    ``words`` are the whole command line, which a last job repeats to collect.

    Raises:
        ConfigError: a file cannot be written, or a package is missing.
        NothingFeasibleError: no candidate could be measured; its results are written by then.
    """
    search = _TrainingSearch(prepared, request, words)
    if request.dry_run and request.json:
        yield dry_run_document(prepared)
    elif request.dry_run:
        yield from search.dry_run()
    elif prepared.machines is not None:
        yield from search.run_jobs()
    elif request.submit_only or request.collect:
        raise ConfigError(
            "--submit-only and --collect are for NeMo's runs on Slurm; runs of our runtime are "
            "watched: omit them, and the same command goes on after an end."
        )
    elif not prepared.settings.runs_training:
        yield search.write_base()
    elif search.is_engine_here:
        yield from search.run_ours()
    else:
        yield from search.write_ours()


class _TrainingSearch:
    def __init__(self, prepared: Prepared, request: SearchRequest, words: tuple[str, ...]) -> None:
        self._prepared, self._request, self._words = prepared, request, words
        self._question, self._candidates = prepared.question, prepared.found.candidates
        self._kind = prepared.settings.cluster.kind
        self._folder = SearchFolder(prepared.settings.train.logs.absolute())
        self._top = prepared.settings.train.top_n if request.top is None else request.top
        self._view = stderr_view(quiet=request.quiet)

    @property
    def is_engine_here(self) -> bool:
        return are_run_here(self._kind)

    def dry_run(self) -> Iterator[str]:
        prepared, question, found = self._prepared, self._question, self._prepared.found
        shape, runs = question.model.shape, prepared.settings.runs_training
        searched = (
            f"; {len(found.candidates)} of {found.found} candidates "
            f"({whose_grid(question).value}) on {found.nodes} x {question.gpus_per_node} ranks"
        )
        yield (
            f"{question.name}: {shape.layers} layers of {shape.hidden}, global batch "
            f"{question.global_batch} of {question.settings.train.sequence} tokens"
            f"{searched if runs else ''}\n"
            f"Results would go to {prepared.settings.train.logs}"
        )
        yield from self._notes
        if not runs:
            yield "run_training_hp_search is False: only the base configuration would be written."
            return
        yield f"\n{self._table}"
        if prepared.machines is not None:
            text, more = self._first_job, len(self._candidates) - 1
            yield f"\nThe job of #1, in submit_all.sh with {more} more:\n{text}"

    @property
    def _notes(self) -> Iterator[str]:
        return (f"Note: {note}" for note in self._prepared.notes)

    def _say_notes(self) -> None:
        for note in self._prepared.notes:
            self._view.handle(Note(text=note))

    @property
    def _table(self) -> str:
        rows = [_row(number, one) for number, one in enumerate(self._candidates, 1)]
        return first_rows(rows, _HEADERS, self._top)

    @property
    def _first_job(self) -> str:
        return job_text(self._question, self._candidates[0], self._prepared.found.nodes)

    def run_jobs(self) -> Iterator[str]:
        """Write all files of the search; if its scheduler answers, run or queue them, too."""
        prepared, request, folder = self._prepared, self._request, self._folder
        if request.submit_only and (self._kind is ClusterKind.BCP or not self.is_engine_here):
            raise ConfigError(
                "--submit-only needs cluster_type=bcm and a Slurm that answers sinfo."
            )
        jobs = NemoJobs(self._question, prepared.found.nodes)
        spare_s = 0.0 if self._kind is ClusterKind.BCP else SLURM_SPARE_S
        limits = training_limits(prepared, NEVER_S, spare_s)
        search = HpSearch(points=self._candidates, runner=JobRunner(jobs), limits=limits)
        if self.is_engine_here and not (request.collect or request.submit_only):
            self._say_notes()
        done = run_jobs(search, jobs, request, self._view.handle)
        if done is not None:
            yield from self._report(done)
        elif request.submit_only:
            numbers = submit_all(jobs, [one.name for one in self._candidates])
            files = folder.files, folder.job("collect")
            last = submit_collection(files, numbers, self._words, prepared.settings.cluster)
            written = folder.logs / FINAL_RESULTS
            yield f"{len(numbers)} runs are queued; job {last} writes {written} last."
        else:
            first, count = self._candidates[0], len(self._candidates)
            best = "" if first.step_s is None else f"{first.name}, {first.step_s:.4g} s per step"
            start = "Submit all" if self._kind is ClusterKind.BCM else "In the allocation, run all"
            more = (
                *((f"Expected to be the fastest: {best}",) if best else ()),
                *self._written(),
                f"{count} job scripts: {folder.job('').parent}",
            )
            yield from self._files_text(more, start)

    def write_ours(self) -> Iterator[str]:
        """Write a search of our own runtime for a cluster that does not answer here."""
        folder, about = self._folder, _ABOUT_OURS[self._kind]
        write_documents(self._question, folder, self._candidates)
        command = shlex.join(("autoconf-launch", "search", *self._words))
        start = f"{SHEBANG}\n# {about}\ncd {shlex.quote(str(Path.cwd()))} || exit\n"
        folder.files.write(folder.submit_all, f"{start}exec {command}\n")
        yield from self._files_text(self._written(), about[:-1])

    def _written(self) -> tuple[str, ...]:
        where = self._folder.candidate("").parent
        return (
            f"Base configuration: {self._folder.base(self._question)}",
            f"{len(self._candidates)} candidate configurations: {where}",
        )

    def _files_text(self, lines: Iterable[str], start: str) -> Iterator[str]:
        """Description of the files that were written, and the command that starts them."""
        if self._request.json:
            yield self._files_document()
            return
        yield f"{self._table}\n"
        yield from self._notes
        yield from lines
        yield f"{start}: bash {shlex.quote(str(self._folder.submit_all))}"

    def _files_document(self) -> str:
        folder, has_jobs = self._folder, self._prepared.machines is not None
        return json_document(
            self._question.name,
            notes=list(self._prepared.notes),
            base_config=str(folder.base(self._question)),
            submit_all=str(folder.submit_all),
            candidates=[
                {
                    "name": one.name,
                    "config": str(folder.candidate(one.name)),
                    "job": str(folder.job(one.name)) if has_jobs else None,
                    "run_folder": str(folder.run(one.name)),
                }
                for one in self._candidates
            ],
        )

    def write_base(self) -> str:
        path = self._folder.base(self._question)
        self._folder.write_config(path, self._question.base)
        self._say_notes()
        if self._request.json:
            return json_document(self._question.name, base_config=str(path))
        return f"Base configuration: {path} (run_training_hp_search is False)"

    def run_ours(self) -> Iterator[str]:
        require_transformers("search")
        if self._kind is ClusterKind.LOCAL:
            require_room(self._question)
        check_tracking(self._prepared.settings.tracking)
        ranks = OurRanks(self._prepared, self._folder, self._view.handle)
        self._say_notes()  # once the folder is known to be writable
        yield from self._report(ranks.run(self._view.handle, fresh=self._request.fresh))

    def _report(self, done: HpRuns[SearchCandidate]) -> Iterator[str]:
        outcome, folder = outcome_of(self._prepared, done), self._folder
        written = write_final_results(
            folder.logs, outcome, top=self._prepared.settings.train.top_n
        )
        if not any(run.step_s for run in outcome.runs):
            sentence = _nothing_measured(done, outcome, written[0].parent)
            write_answer(folder.runs, sentence)
            raise NothingFeasibleError(sentence, done.stop.log_tail)
        lines = (
            top_text(outcome, self._top).rstrip("\n"),
            *summary_lines(outcome, {one.name for one in self._candidates}),
            f"Results: {written[0].parent}",
        )
        write_answer(folder.runs, "\n".join(lines))
        is_json = self._request.json
        yield from (result_document(self._question.name, outcome),) if is_json else lines


def _row(number: int, one: SearchCandidate) -> tuple[object, ...]:
    layout, layers = one.layout, one.point.recompute_layers
    kind = layout.recompute.value
    return (
        number,
        *(*layout.mesh, layout.micro_batch, layout.virtual_pipeline, layout.accumulation),
        kind if not layers else f"{kind} {layers}",
        *(one.step_s, None if one.peak_bytes is None else one.peak_bytes / GIB),
        one.name,
    )


def dry_run_document(prepared: Prepared) -> str:
    """A dry run as one JSON document."""
    question, found = prepared.question, prepared.found
    return json_document(
        question.name,
        family=question.family.name,
        model_size_b=question.size_b,
        nodes=found.nodes,
        gpus_per_node=question.gpus_per_node,
        global_batch=question.global_batch,
        grid=whose_grid(question).value,
        found=found.found,
        notes=list(prepared.notes),
        base_config=question.base.to_dict(),
        candidates=[
            {
                "name": one.name,
                **{name: getattr(one.layout, name) for name in (*_LAYOUT, "accumulation")},
                "recompute": one.layout.recompute.value,
                "recompute_layers": one.point.recompute_layers,
                "zero_stage": one.layout.zero_stage,
                "predicted_step_s": one.step_s,
                "predicted_peak_bytes": one.peak_bytes,
                "job": job_text(question, one, found.nodes) if prepared.machines else None,
            }
            for one in found.candidates
        ],
    )


def result_document(name: str, outcome: SearchOutcome) -> str:
    """Every run, measured ones first and the fastest of them on top."""
    measured = sorted((run for run in outcome.runs if run.step_s), key=lambda run: run.step_s or 0)
    failed = [run for run in outcome.runs if not run.step_s]
    return json_document(
        name,
        nodes=outcome.nodes,
        gpus_per_node=outcome.gpus_per_node,
        best=measured[0].name if measured else None,
        notes=list(outcome.notes),
        runs=[_entry(run) for run in (*measured, *failed)],
    )


def _entry(run: SearchRun) -> dict[str, object]:
    layout = run.point.layout
    return {
        "name": run.name,
        **{name: getattr(layout, name) for name in (*_MESH, "micro_batch")},
        "recompute_layers": run.point.recompute_layers,
        "knobs": dict(run.knobs),
        "global_batch": run.global_batch,
        "steps": run.steps if run.extrapolated_from is None else 0,
        "extrapolated_from_micro_batches": run.extrapolated_from,
        **{name: getattr(run, name) for name in ("step_s", "step_spread_s", "peak_bytes")},
        "failure": None if run.failure is None else failure_kind(run.failure),
        "detail": None if run.failure is None else run.failure.detail,
    }


def _nothing_measured(done: HpRuns[SearchCandidate], outcome: SearchOutcome, folder: Path) -> str:
    """Reason by the last run that was started, in the words of its table."""
    stop, sentence = done.stop, stop_sentence(done.stop)
    if stop.kind is not StopKind.NOTHING_FITS:
        started = {record.trial.name for record in done.records}
        last = [run for run in outcome.runs if run.name in started and run.failure][-1]
        assert last.failure is not None
        why = named_failure(last.failure)
        sentence = f"No configuration could be measured; the last, {last.name}: {why}"
    return f"{sentence.rstrip('.')}. See {folder}."
