"""``search``: the fastest layout for training a model, and for generating its text.

``search [flags] search_config=gpt3/5b [key=value …]``: keys of NVIDIA's AutoConfigurator. The
training half is :mod:`..search`; the flow of both halves and the inference half are here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoconf_launch.core import ConfigError, Failure, NothingFeasibleError, plural
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import TrialLimits, write_answer

from ..report import (
    POINTS,
    InferenceRun,
    SearchPoint,
    analysis_log,
    configs_csv,
    final_csv,
    first_rows,
    not_run,
    order_runs,
    pareto_csv,
    recommend_runs,
    serving_documents,
    serving_lines,
    why_not_served,
)
from ..search import (
    NEVER_S,
    SLURM_SPARE_S,
    ClusterKind,
    HalfAnswer,
    HpRuns,
    HpSearch,
    JobQueue,
    JobRunner,
    Prepared,
    RunLimits,
    SearchSettings,
    TrainingHalf,
    are_run_here,
    check_paths,
    collect_jobs,
    open_queue,
    prepare_training,
    run_jobs,
    stderr_view,
)
from ..search_flags import SearchRequest, parse_search
from .engines import SharingEngine
from .jobs import (
    SUBMIT,
    PointJobs,
    inference_job,
    load_files,
    load_lines,
    load_script,
    why_no_job,
)
from .local_runs import PointRanks, SharedProcesses, busy_note, per_gpu_objective
from .points import LengthSearch, PreparedInference, prepare_inference


def search(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: wrong arguments, keys, sizes or paths: before anything is launched.
        NothingFeasibleError: nothing could be measured, or no point is within the bound; results
            of both halves are written by then.
    """
    request, words = parse_search(arguments), tuple(arguments)
    inference, prepared = _both(prepare_training(request), request)
    halves: list[TrainingHalf | InferenceHalf] = []
    if inference is None or prepared.settings.runs_training:
        halves.append(TrainingHalf(prepared, request, words))
    if inference is not None:
        halves.append(InferenceHalf(inference, request))
    if request.dry_run:
        yield from _text(request, [(half.model, half.dry_run) for half in halves])
        if not request.json:
            yield "Nothing was launched or written (--dry-run)."
        return
    is_ours = prepared.machines is None and isinstance(halves[0], TrainingHalf)
    if is_ours and (request.submit_only or request.collect):
        raise ConfigError(
            "--submit-only and --collect are for NeMo's runs on Slurm, but these runs are our "
            "runtime's; omit the flag: the command waits for its runs, and resumes if it is "
            "repeated."
        )
    if request.submit_only:
        yield _queue(request, words, prepared.settings, halves)
    else:
        listener = stderr_view(quiet=request.quiet).handle
        answers = [(half.model, partial(half.answer, listener)) for half in halves]
        yield from _text(request, answers)


def _both(prepared: Prepared, request: SearchRequest) -> tuple[PreparedInference | None, Prepared]:
    """The inference half, if it is asked for or possible; else a note says why it is not."""
    settings = prepared.settings
    if not settings.runs_inference:
        return None, prepared
    try:
        found = prepare_inference(settings, prepared.question, dry_run=request.dry_run)
    except ConfigError as error:
        is_asked = any("inference" in key or key == "engine" for key in settings.given)
        if is_asked or not settings.runs_training:
            raise
        notes = (*prepared.notes, f"No inference search: {error}")
        return None, replace(prepared, notes=notes)
    return found, prepared


def _text(
    request: SearchRequest, answers: Sequence[tuple[str, Callable[[], HalfAnswer]]]
) -> Iterator[str]:
    """The answers of the halves, one after the other, or one JSON document of them."""
    documents, failures = list[dict[str, object]](), list[NothingFeasibleError]()
    for number, (model, answer) in enumerate(answers):
        if number and not request.json:
            yield ""
        try:
            found = answer()
        except NothingFeasibleError as error:
            failures.append(error)
            continue
        failures += found.failures
        if request.json:
            documents.append({"schema_version": 1, "model": model, **found.document()})
        else:
            yield from found.lines()
    if documents and len(documents) == len(answers):
        whole = documents[0] | ({"inference": documents[1]} if documents[1:] else {})
        yield json.dumps(whole, indent=2)
    if failures:
        raise failures[0]


def _queue(
    request: SearchRequest,
    words: Sequence[str],
    settings: SearchSettings,
    halves: Iterable[TrainingHalf | InferenceHalf],
) -> str:
    """Queue the jobs of all halves, and a last job that collects their results."""
    kind = settings.cluster.kind
    if kind is not ClusterKind.BCM or not are_run_here(kind):
        raise ConfigError("--submit-only needs cluster_type=bcm and a Slurm that answers sinfo.")
    with open_queue(words, settings.cluster, fresh=request.fresh) as queue:
        for half in halves:
            half.queue(queue)
        last = queue.collect()
    count, results = len(queue.numbers), queue.results
    if request.json:
        document = {"schema_version": 1, "queued": count, "collected_by": last}
        return json.dumps(document | {"results": results}, indent=2)
    runs = f"{plural(count, 'run')} {'is' if count == 1 else 'are'} queued"
    return f"{runs}; job {last} writes {' and '.join(results)} last."


class InferenceHalf:
    """Points of an inference search, listed, written, queued or run."""

    def __init__(self, prepared: PreparedInference, request: SearchRequest) -> None:
        self.model, self._prepared, self._request = prepared.name, prepared, request
        self._lengths = [_LengthHalf(prepared, search, request) for search in prepared.searches]
        self._grid = prepared.question.scope.grid.value
        title = f"Inference of {self.model} with engine {prepared.engine_name}"
        notes = (f"Note: {note}" for note in prepared.notes)
        self._title = "\n".join((f"{title} ({self._grid} grid)", *notes))

    def dry_run(self) -> HalfAnswer:
        return HalfAnswer(
            lines=lambda: (
                self._title,
                *(line for half in self._lengths for line in half.dry_text()),
            ),
            document=lambda: self._document(
                grid=self._grid,
                points=[entry for half in self._lengths for entry in half.dry_entries()],
                load_tests=[half.load_script() for half in self._lengths if half.search.runnable],
            ),
        )

    def queue(self, queue: JobQueue) -> None:
        check_paths(self._prepared.all_settings, needs_data=False)
        for half in self._lengths:
            half.queue(queue)

    def answer(self, listener: Listener) -> HalfAnswer:
        """Run the points of all lengths, or write their jobs.

        Raises:
            ConfigError: a path that jobs need is missing, or a file cannot be written.
        """
        prepared, is_local = self._prepared, self._prepared.is_local
        if is_local:
            check_tracking(prepared.all_settings.tracking)
            can_run = any(half.search.runnable for half in self._lengths)
            for note in prepared.notes if can_run else ():
                listener(Note(text=note))
        else:
            check_paths(prepared.all_settings, needs_data=False)
        lines, documents, wrong = list[str](), list[object](), list(prepared.refused)
        for half in self._lengths:
            rows, is_over = half.run_here(listener) if is_local else half.run_jobs(listener)
            documents.append(half.document(rows))
            wrong += [why_not_served(rows, half.search.summary)] if is_over else []
            lines += half.result_text(rows) if is_local else (self._title, *half.jobs_text(rows))
        failures = (NothingFeasibleError(sentence) for sentence in wrong if sentence)
        return HalfAnswer(
            lines=lambda: lines,
            document=lambda: self._document(searches=documents),
            failures=tuple(failures),
        )

    def _document(self, **facts: object) -> dict[str, object]:
        notes = list(self._prepared.notes)
        return {"engine": self._prepared.engine_name, "notes": notes, **facts}


class _LengthHalf:
    """The search of one pair of lengths."""

    def __init__(
        self, prepared: PreparedInference, search: LengthSearch, request: SearchRequest
    ) -> None:
        self._prepared, self.search, self._request = prepared, search, request
        self._top = prepared.settings.top_n if request.top is None else request.top
        self._limit = prepared.question.scope.limit_runs or None
        task, count = search.points[0].task, len(search.runnable)
        self._about = (
            f"{count} of {len(search.points)} points, {task.input_len} tokens in and "
            f"{task.output_len} out, in {task.precision.value}; results: {search.folder}"
        )

    def dry_text(self) -> Iterator[str]:
        yield f"\n{self._about}\n{first_rows(POINTS, self.search.points, self._top)}"
        if not self._prepared.is_local and self.search.runnable:
            first = self.search.runnable[0]
            text = inference_job(self._prepared, self.search, first)
            yield f"\nThe job of {first.name}, in {SUBMIT} with the others:\n{text}"
            if test := self.load_script():
                yield f"Its load test, submitted only if it is recommended:\n{test}"

    def load_script(self) -> str | None:
        return load_script(self._prepared, self.search, self.search.runnable[0]) or None

    def dry_entries(self) -> Iterator[dict[str, object]]:
        points = self.search.points
        entries = serving_documents([not_run(one, self._prepared.bound_s) for one in points])
        for point, entry in zip(points, entries, strict=True):
            has_job = not (self._prepared.is_local or point.why_not)
            job = inference_job(self._prepared, self.search, point) if has_job else None
            yield {**entry, "reason": point.why_not, "job": job}

    def queue(self, queue: JobQueue) -> None:
        jobs, search = PointJobs(self._prepared, self.search), self.search
        queue.add(jobs, self._ready, (search.paths, search.folder / "collect.sh", search.summary))

    def run_jobs(self, listener: Listener) -> tuple[list[InferenceRun], bool]:
        """Write jobs; if their scheduler answers, run them; then show the measurements.

        The second value is True if nothing more will run.
        """
        prepared, search, request = self._prepared, self.search, self._request
        jobs = PointJobs(prepared, search)
        limit_s = prepared.settings.time_limit_s + SLURM_SPARE_S
        launch = TrialLimits(timeout_s=limit_s, stall_s=NEVER_S, timeout_by="time_limit")
        runs = HpSearch(
            points=self._ready,
            runner=JobRunner(jobs, objective=per_gpu_objective(prepared.bound_s)),
            limits=RunLimits(steps=1, steps_s=NEVER_S, launch=launch),
        )
        done = run_jobs(runs, jobs, request, listener) if self._ready else None
        refused = ((one, why_no_job(prepared, one) or one.why_not) for one in search.points)
        rows = [
            not_run(replace(one, why_not=why), prepared.bound_s) for one, why in refused if why
        ]
        rows += self._rows(done or collect_jobs(jobs, self._ready))
        self._write_tables(rows)
        for run in recommend_runs(rows, 1):
            self._write(load_files(prepared, search, run.point))
        return rows, (done is not None and not request.collect) or not self._ready

    def _rows(self, done: HpRuns[SearchPoint]) -> Iterator[InferenceRun]:
        for point, found in done.outcomes():
            if isinstance(found, Failure):
                yield not_run(point, self._prepared.bound_s, found)
            else:
                yield self._prepared.inference_run(point, found.outcome)

    @property
    def _ready(self) -> tuple[SearchPoint, ...]:
        found = (one for one in self.search.runnable if not why_no_job(self._prepared, one))
        return tuple(found)[: self._limit]

    def jobs_text(self, rows: Sequence[InferenceRun]) -> Iterator[str]:
        yield self._about
        if any(row.measured for row in rows):
            yield from self.result_text(rows)
            for best in recommend_runs(rows, 1):
                yield from load_lines(self._prepared, self.search, best.point)
            return
        yield first_rows(POINTS, [row.point for row in rows], self._top)
        if self._ready:
            yield (
                f"Submit all: bash {shlex.quote(str(self.search.folder / SUBMIT))}; the same "
                f"search then reads what they measured into {self.search.summary}"
            )

    def run_here(self, listener: Listener) -> tuple[list[InferenceRun], bool]:
        prepared, search = self._prepared, self.search
        bound_s, chosen = prepared.bound_s, search.runnable[: self._limit]
        rows = [not_run(point, bound_s) for point in search.points if point.why_not]
        for point in search.runnable[len(chosen) :]:
            why = f"limit_search_runs is {self._limit}"
            rows.append(not_run(replace(point, why_not=why), bound_s))
        if chosen:
            engine = prepared.engine
            runner = (
                SharedProcesses(prepared, search, chosen, engine)
                if isinstance(engine, SharingEngine)
                else PointRanks(prepared, search, chosen)
            )
            points = HpSearch(points=runner.points, runner=runner, limits=runner.limits)
            done = points.run(listener, fresh=self._request.fresh)
            if note := busy_note(done.records, len(prepared.cluster.devices)):
                listener(Note(text=note, warning=True))
            rows += self._rows(done)
        self._write_tables(rows)
        write_answer(search.paths, "\n".join(self.result_text(rows)))
        return rows, True

    def _write_tables(self, rows: Sequence[InferenceRun]) -> None:
        texts = {
            "inference_sweep_configs.csv": configs_csv(self.search.points),
            "final_output.csv": final_csv(rows),
            "analysis_summary.log": analysis_log(rows, self._prepared.settings.top_n),
            "pareto.csv": pareto_csv(rows),
        }
        self._write({self.search.summary / name: text for name, text in texts.items()})

    def _write(self, texts: Mapping[Path, str]) -> None:
        for path, text in texts.items():
            self.search.paths.write(path, text)

    def result_text(self, rows: Sequence[InferenceRun]) -> Iterator[str]:
        return serving_lines(rows, self._top, self.search.summary)

    def document(self, rows: Sequence[InferenceRun]) -> dict[str, object]:
        best = recommend_runs(rows, self._prepared.settings.top_n)
        return {
            "folder": str(self.search.folder),
            "recommended": [run.point.name for run in best],
            "runs": serving_documents(order_runs(rows)),
        }
