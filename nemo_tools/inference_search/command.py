"""``search``: the fastest layout for training a model, and for generating its text.

``search [flags] search_config=gpt3/5b [key=value …]``: keys of NVIDIA's AutoConfigurator. The
training half is :mod:`..search`; dry runs, jobs, runs and results of the inference half are here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import GIB, ConfigError, Failure, NothingFeasibleError, plural
from autoconf_launch.launcher.engines import is_slurm_here
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import TrialLimits, write_answer

from ..search import (
    NEVER_S,
    SLURM_SPARE_S,
    HpRuns,
    HpSearch,
    JobRunner,
    RunLimits,
    collect_jobs,
    first_rows,
    json_document,
    prepare_training,
    run_jobs,
    search_training,
    stderr_view,
    submit_all,
)
from ..search import check_paths as require_paths
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
from .points import LengthSearch, PreparedInference, SearchPoint, model_name, prepare_inference
from .results import (
    InferenceRun,
    analysis_log,
    configs_csv,
    digits_of,
    final_csv,
    nearest_run,
    not_run,
    order_runs,
    pareto_csv,
    prediction_line,
    recommend_runs,
    run_entry,
    run_of_outcome,
)


def search(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: wrong arguments, keys, sizes or paths: before anything is launched.
        NothingFeasibleError: nothing could be measured, or no point is within the bound; results
            of both halves are written by then.
    """
    request = parse_search(arguments)
    yield from _search(request, tuple(arguments))
    if request.dry_run and not request.json:
        yield "Nothing was launched or written (--dry-run)."


def _search(request: SearchRequest, words: tuple[str, ...]) -> Iterator[str]:
    prepared = prepare_training(request)
    settings = prepared.settings
    inference = None
    if settings.runs_inference:
        try:
            inference = prepare_inference(prepared.question, dry_run=request.dry_run)
        except ConfigError as error:
            is_asked = any("inference" in key or key == "engine" for key in settings.given)
            if is_asked or not settings.runs_training:
                raise
            prepared = replace(prepared, notes=(*prepared.notes, f"No inference search: {error}"))
    if inference is None:
        yield from search_training(prepared, request, words)
    elif not settings.runs_training:
        yield from search_inference(inference, request)
    elif request.json:
        document = json.loads("".join(search_training(prepared, request, words)))
        document["inference"] = json.loads("".join(search_inference(inference, request)))
        yield json.dumps(document, indent=2)
    else:
        yield from _both(search_training(prepared, request, words), inference, request)


def _both(
    training: Iterator[str], inference: PreparedInference, request: SearchRequest
) -> Iterator[str]:
    failed: NothingFeasibleError | None = None
    try:
        yield from training
    except NothingFeasibleError as error:
        failed = error
    yield ""
    yield from search_inference(inference, request)
    if failed is not None:
        raise failed


_SHAPE = ("#", "tp", "pp", "bs", "latency ms", "samples/s/GPU", "TTFT ms")
_HEADERS = (*_SHAPE, "GiB", "name or reason")
_RESULT = (*_SHAPE, "ms/token", "GiB", "predicted")


def search_inference(prepared: PreparedInference, request: SearchRequest) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: a path that jobs need is missing, or a file cannot be written.
        NothingFeasibleError: no point was measured, or none within the bound; every run's row is
            written by then.
    """
    halves = [_LengthHalf(prepared, search, request) for search in prepared.searches]
    grid = prepared.question.settings.grid.value
    title = f"Inference of {model_name(prepared.question)} with engine {prepared.engine_name}"
    title = "\n".join((f"{title} ({grid} grid)", *(f"Note: {note}" for note in prepared.notes)))
    if request.dry_run and request.json:
        points = [entry for half in halves for entry in half.dry_entries()]
        tests = [half.load_script() for half in halves if half.search.runnable]
        yield _document(prepared, grid=grid, points=points, load_tests=tests)
    elif request.dry_run:
        yield title
        for half in halves:
            yield from half.dry_text()
    else:
        yield from _run(prepared, request, halves, title)


def _document(prepared: PreparedInference, **facts: object) -> str:
    name, notes = model_name(prepared.question), list(prepared.notes)
    return json_document(name, engine=prepared.engine_name, notes=notes, **facts)


def _run(
    prepared: PreparedInference, request: SearchRequest, halves: list[_LengthHalf], title: str
) -> Iterator[str]:
    listener, is_local = stderr_view(quiet=request.quiet).handle, prepared.is_local
    if is_local:
        check_tracking(prepared.question.settings.tracking)
        for note in prepared.notes if any(half.search.runnable for half in halves) else ():
            listener(Note(text=note))
    else:
        require_paths(prepared.question.settings, needs_data=False)
    documents, wrong = [], list(prepared.refused)
    for half in halves:
        rows, is_over = half.run_here(listener) if is_local else half.run_jobs(listener)
        documents.append(half.document(rows))
        wrong += [half.why_nothing(rows)] if is_over else []
        if not request.json:
            yield from half.result_text(rows) if is_local else (title, *half.jobs_text(rows))
    if request.json:
        yield _document(prepared, searches=documents)
    for sentence in filter(None, wrong):
        raise NothingFeasibleError(sentence)


class _LengthHalf:
    def __init__(
        self, prepared: PreparedInference, search: LengthSearch, request: SearchRequest
    ) -> None:
        self._prepared, self.search, self._request = prepared, search, request
        self._top = prepared.settings.top_n if request.top is None else request.top
        limit = prepared.question.settings.train.limit_runs
        self._limit = limit or None
        task, count = search.points[0].task, len(search.runnable)
        self._about = (
            f"{count} of {len(search.points)} points, {task.input_len} tokens in and "
            f"{task.output_len} out, in {task.precision.value}; results: {search.folder}"
        )

    def dry_text(self) -> Iterator[str]:
        yield f"\n{self._about}\n{self._table(self.search.points)}"
        if not self._prepared.is_local and self.search.runnable:
            first = self.search.runnable[0]
            text = inference_job(self._prepared, self.search, first)
            yield f"\nThe job of {first.name}, in {SUBMIT} with the others:\n{text}"
            if test := self.load_script():
                yield f"Its load test, submitted only if it is recommended:\n{test}"

    def load_script(self) -> str | None:
        return load_script(self._prepared, self.search, self.search.runnable[0]) or None

    def dry_entries(self) -> Iterator[dict[str, object]]:
        for point in self.search.points:
            has_job = not (self._prepared.is_local or point.why_not)
            job = inference_job(self._prepared, self.search, point) if has_job else None
            entry = run_entry(not_run(point, self._prepared.bound_s))
            yield {**entry, "reason": point.why_not, "job": job}

    def _table(self, points: Sequence[SearchPoint]) -> str:
        rows = [_point_row(number, one) for number, one in enumerate(points, 1)]
        return first_rows(rows, _HEADERS, self._top)

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
        if request.submit_only and is_slurm_here():
            submit_all(jobs, [point.name for point in self._ready])
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
                yield run_of_outcome(self._prepared, point, found.outcome)

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
        yield self._table([row.point for row in rows])
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
            done = runner.run(listener, fresh=self._request.fresh)
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
        measured = [run for run in order_runs(rows) if run.latency_s is not None]
        failed = [run for run in rows if run.latency_s is None]
        if measured:
            table = [_result_row(number, run) for number, run in enumerate(measured, 1)]
            yield first_rows(table, _RESULT, self._top)
        for best in recommend_runs(rows, 1):
            yield (
                f"Recommended: {best.point.name}, {best.throughput_per_gpu:.4g} samples/s/GPU "
                f"at {1e3 * (best.latency_s or 0.0):.4g} ms"
            )
        if line := prediction_line(rows):
            yield line
        if failed:
            first = failed[0]
            points = plural(len(failed), "point")
            yield f"{points} not measured, such as {first.point.name}: {first.reason}"
        yield f"Results: {self.search.summary}"

    def document(self, rows: Sequence[InferenceRun]) -> dict[str, object]:
        best = recommend_runs(rows, self._prepared.settings.top_n)
        return {
            "folder": str(self.search.folder),
            "recommended": [run.point.name for run in best],
            "runs": [run_entry(run) for run in order_runs(rows)],
        }

    def why_nothing(self, rows: Sequence[InferenceRun]) -> str:
        if any(run.satisfies for run in rows):
            return ""
        nearest, summary = nearest_run(rows), self.search.summary
        if nearest is None:
            why = f"{rows[0].point.name}: {rows[0].reason}".rstrip(".")
            return f"No point could be measured. {why}; see {summary}."
        return (
            f"No point is within max_latency_ms = {1e3 * self._prepared.bound_s:g}; the nearest "
            f"is {nearest.point.name} with {1e3 * (nearest.latency_s or 0.0):.4g} ms. See "
            f"{summary}."
        )


def _point_row(number: int, one: SearchPoint) -> tuple[object, ...]:
    layout, found = one.layout, one.predicted
    shape = (layout.tensor_parallel, layout.pipeline_parallel, layout.micro_batch)
    if found is None:
        return (number, *shape, None, None, None, None, one.why_not)
    return (
        *(number, *shape, 1e3 * found.latency_s, found.samples_per_s_per_gpu),
        *(1e3 * found.ttft_s, found.peak_bytes / GIB, one.why_not or one.name),
    )


def _result_row(number: int, run: InferenceRun) -> tuple[object, ...]:
    layout, predicted = run.point.layout, run.point.predicted
    memory = run.measured.memory if run.measured else None
    return (
        *(number, layout.tensor_parallel, layout.pipeline_parallel, layout.micro_batch),
        digits_of(1e3 * (run.latency_s or 0.0)),
        run.throughput_per_gpu,
        None if run.ttft_s is None else 1e3 * run.ttft_s,
        None if run.token_s is None else 1e3 * run.token_s,
        memory.peak_bytes / GIB if memory else None,
        f"{1e3 * predicted.latency_s:.4g} ms" if predicted else None,
    )
