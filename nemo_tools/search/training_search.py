"""The training half of ``search``: the fastest layout of a model, by short real runs.

On a cluster each run is a job script; these are only written if Slurm or Base Command is
missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.report import rows_documents
from autoconf_launch.launcher.request import HostChoice, LaunchRequest, RemoteAccess
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import write_answer

from ..report import (
    CANDIDATES,
    FINAL_RESULTS,
    SearchOutcome,
    first_rows,
    nothing_measured,
    run_documents,
    summary_lines,
    top_text,
    write_final_results,
)
from ..search_flags import SearchRequest
from .candidate_file import SearchFolder, write_documents
from .candidates import SearchCandidate
from .hp_search import HpRuns, HpSearch
from .job_runs import NEVER_S, SLURM_SPARE_S, JobQueue, JobRunner, are_run_here, run_jobs
from .jobs import SHEBANG, NemoJobs, job_text, sbatch_words
from .our_ranks import OurRanks, require_transformers
from .outcome import outcome_of, training_limits
from .prepare import Prepared
from .question import whose_grid
from .settings import ClusterKind
from .this_machine import local_request, require_room

_ABOUT_OURS = {
    ClusterKind.BCM: "Runs the search where Slurm answers, each run as a job.",
    ClusterKind.BCP: "Runs the search inside Base Command, one run after the other.",
}
_ENGINES = {ClusterKind.BCM: "sbatch", ClusterKind.BCP: "bcprun"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAnswer:
    """The answer of one half of a search, as text or as a part of the JSON document.

    Of its ``failures`` the first ends the search with an error once the answer is printed.
    """

    lines: Callable[[], Iterable[str]]
    document: Callable[[], dict[str, object]]
    failures: tuple[NothingFeasibleError, ...] = ()


class TrainingHalf:
    """Candidates of a training search, listed, written, queued or run."""

    def __init__(self, prepared: Prepared, request: SearchRequest, words: tuple[str, ...]) -> None:
        self.model, self._words = prepared.question.name, words
        self._prepared, self._request = prepared, request
        self._question, self._candidates = prepared.question, prepared.found.candidates
        self._kind = prepared.settings.cluster.kind
        self._folder = SearchFolder(prepared.question.scope.logs)
        self._top = prepared.settings.train.top_n if request.top is None else request.top

    def dry_run(self) -> HalfAnswer:
        return HalfAnswer(lines=self._dry_lines, document=self._dry_document)

    def queue(self, queue: JobQueue) -> None:
        folder, results = self._folder, self._folder.logs / FINAL_RESULTS
        files = folder.files, folder.job("collect"), results
        queue.add(NemoJobs(self._prepared), self._candidates, files)

    def answer(self, listener: Listener) -> HalfAnswer:
        """Do what the settings ask for.

        Raises:
            ConfigError: a file cannot be written, or a package is missing.
            NothingFeasibleError: no candidate could be measured; its results are written by then.
        """
        prepared, is_here = self._prepared, are_run_here(self._kind)
        if not prepared.settings.runs_training:
            path = self._folder.base(self._question)
            self._folder.write_config(path, self._question.base)
            self._say_notes(listener)
            line = f"Base configuration: {path} (run_training_hp_search is False)"
            return HalfAnswer(lines=lambda: (line,), document=lambda: {"base_config": str(path)})
        if prepared.machines is None:
            return self._run_ours(listener) if is_here else self._write_ours()
        jobs = NemoJobs(prepared)
        if is_here and not self._request.collect:
            self._say_notes(listener)
        spare_s = 0.0 if self._kind is ClusterKind.BCP else SLURM_SPARE_S
        limits = training_limits(self._question, NEVER_S, spare_s)
        search = HpSearch(points=self._candidates, runner=JobRunner(jobs), limits=limits)
        done = run_jobs(search, jobs, self._request, listener)
        return self._written_jobs() if done is None else self._report(done)

    def _dry_lines(self) -> Iterator[str]:
        prepared, question, found = self._prepared, self._question, self._prepared.found
        shape, runs = question.model.shape, prepared.settings.runs_training
        searched = (
            f"; {len(found.candidates)} of {found.found} candidates "
            f"({whose_grid(question).value}) on {found.nodes} x {question.gpus_per_node} ranks"
        )
        yield (
            f"{question.name}: {shape.layers} layers of {shape.hidden}, global batch "
            f"{question.global_batch} of {question.sequence} tokens{searched if runs else ''}\n"
            f"Results would go to {question.scope.logs}"
        )
        yield from self._notes
        if not runs:
            yield "run_training_hp_search is False: only the base configuration would be written."
            return
        yield f"\n{self._table}"
        if prepared.machines is not None:
            text, more = job_text(prepared, self._candidates[0]), len(self._candidates) - 1
            yield f"\nThe job of #1, in submit_all.sh with {more} more:\n{text}"

    def _dry_document(self) -> dict[str, object]:
        question, found, prepared = self._question, self._prepared.found, self._prepared
        has_jobs = prepared.machines is not None
        jobs = (job_text(prepared, one) if has_jobs else None for one in self._candidates)
        rows = zip(rows_documents(CANDIDATES, self._candidates), jobs, strict=True)
        return {
            "family": question.family.name,
            "model_size_b": question.size_b,
            "nodes": found.nodes,
            "gpus_per_node": question.gpus_per_node,
            "global_batch": question.global_batch,
            "grid": whose_grid(question).value,
            "found": found.found,
            "notes": list(prepared.notes),
            "base_config": question.base.to_dict(),
            "candidates": [{**row, "job": job} for row, job in rows],
        }

    @property
    def _notes(self) -> Iterator[str]:
        return (f"Note: {note}" for note in self._prepared.notes)

    def _say_notes(self, listener: Listener) -> None:
        for note in self._prepared.notes:
            listener(Note(text=note))

    @property
    def _table(self) -> str:
        return first_rows(CANDIDATES, self._candidates, self._top)

    def _written_jobs(self) -> HalfAnswer:
        first, count = self._candidates[0], len(self._candidates)
        best = "" if first.step_s is None else f"{first.name}, {first.step_s:.4g} s per step"
        start = "Submit all" if self._kind is ClusterKind.BCM else "In the allocation, run all"
        more = (
            *((f"Expected to be the fastest: {best}",) if best else ()),
            *self._written(),
            f"{count} job scripts: {self._folder.job('').parent}",
        )
        return self._files_answer(more, start)

    def _write_ours(self) -> HalfAnswer:
        """Write a search of our own runtime for a cluster that does not answer here."""
        folder, about = self._folder, _ABOUT_OURS[self._kind]
        write_documents(self._question, folder, self._candidates)
        command = shlex.join(("autoconf-launch", "search", *self._words))
        start = f"{SHEBANG}\n# {about}\ncd {shlex.quote(str(Path.cwd()))} || exit\n"
        folder.files.write(folder.submit_all, f"{start}exec {command}\n")
        return self._files_answer(self._written(), about[:-1])

    def _written(self) -> tuple[str, ...]:
        where = self._folder.candidate("").parent
        return (
            f"Base configuration: {self._folder.base(self._question)}",
            f"{len(self._candidates)} candidate configurations: {where}",
        )

    def _files_answer(self, lines: Iterable[str], start: str) -> HalfAnswer:
        """Description of the files that were written, and the command that starts them."""
        last = f"{start}: bash {shlex.quote(str(self._folder.submit_all))}"
        return HalfAnswer(
            lines=lambda: (f"{self._table}\n", *self._notes, *lines, last),
            document=self._files_document,
        )

    def _files_document(self) -> dict[str, object]:
        folder, has_jobs = self._folder, self._prepared.machines is not None
        return {
            "notes": list(self._prepared.notes),
            "base_config": str(folder.base(self._question)),
            "submit_all": str(folder.submit_all),
            "candidates": [
                {
                    "name": one.name,
                    "config": str(folder.candidate(one.name)),
                    "job": str(folder.job(one.name)) if has_jobs else None,
                    "run_folder": str(folder.run(one.name)),
                }
                for one in self._candidates
            ],
        }

    def _run_ours(self, listener: Listener) -> HalfAnswer:
        require_transformers("search")
        is_local = self._kind is ClusterKind.LOCAL
        if is_local:
            require_room(self._question)
        launch = launch_request(self._prepared)
        check_tracking(launch.tracking)
        ranks = OurRanks(self._question, self._folder, launch, None if is_local else listener)
        self._say_notes(listener)  # once the folder is known to be writable
        search = HpSearch(points=self._candidates, runner=ranks, limits=ranks.limits)
        return self._report(search.run(listener, fresh=self._request.fresh))

    def _report(self, done: HpRuns[SearchCandidate]) -> HalfAnswer:
        prepared, folder = self._prepared, self._folder
        outcome = outcome_of(prepared.question, prepared.found, done, prepared.notes)
        written = write_final_results(folder.logs, outcome, top=prepared.settings.train.top_n)
        if not any(run.step_s for run in outcome.runs):
            started = {record.trial.name for record in done.records}
            sentence = nothing_measured(outcome, started, done.stop, written[0].parent)
            write_answer(folder.runs, sentence)
            raise NothingFeasibleError(sentence, done.stop.log_tail)
        lines = (
            top_text(outcome, self._top).rstrip("\n"),
            *summary_lines(outcome, {one.name for one in self._candidates}),
            f"Results: {written[0].parent}",
        )
        write_answer(folder.runs, "\n".join(lines))
        return HalfAnswer(lines=lambda: lines, document=lambda: result_document(outcome))


def launch_request(prepared: Prepared) -> LaunchRequest:
    """A launch of nothing yet: on this machine, by jobs of Slurm, or inside Base Command."""
    question, settings = prepared.question, prepared.settings
    kind, launch = settings.cluster.kind, local_request(question.gpus)
    if kind is not ClusterKind.LOCAL:
        words = sbatch_words(settings.cluster, question.name) if kind is ClusterKind.BCM else ()
        launch = replace(
            local_request(question.gpus_per_node),
            hosts=HostChoice(nodes=question.nodes),
            remote=RemoteAccess(engine=_ENGINES[kind], arguments=words),
        )
    words = ("search", f"search_config={settings.choice}", *sorted(settings.given))
    return replace(launch, tracking=settings.tracking, argv=words)


def result_document(outcome: SearchOutcome) -> dict[str, object]:
    """Every run, measured ones first and the fastest of them on top."""
    measured = sorted((run for run in outcome.runs if run.step_s), key=lambda run: run.step_s or 0)
    failed = [run for run in outcome.runs if not run.step_s]
    return {
        "nodes": outcome.nodes,
        "gpus_per_node": outcome.gpus_per_node,
        "best": measured[0].name if measured else None,
        "notes": list(outcome.notes),
        "runs": run_documents([*measured, *failed]),
    }
