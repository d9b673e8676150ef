"""``search``: the fastest layout to train a model with, and the one that writes its text best.

``search [flags] search_config=gpt3/5b [key=value …]``: keys of NVIDIA's AutoConfigurator. The
training half is :mod:`..search`; dry runs, jobs, runs and results of the inference half are here.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import (
    GIB,
    ConfigError,
    Failure,
    FailureKind,
    NothingFeasibleError,
    plural,
)
from autoconf_launch.launcher.engines import (
    UNSAID_WAIT_S,
    SlurmQueue,
    cancel_jobs,
    is_slurm_here,
    pending_text,
    submit_job,
)
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.interrupts import stopping_on_signals
from autoconf_launch.launcher.launch import file_tail
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import write_answer

from ..report import NOT_STARTED
from ..search import (
    ClusterKind,
    HpRuns,
    first_rows,
    json_document,
    prepare_training,
    search_training,
    stderr_view,
    submit_all_text,
)
from ..search import check_paths as require_paths
from ..search_flags import SearchRequest, parse_search
from .engines import FIRST_TOKEN_FILE, LATENCY_FILE, SharingEngine
from .jobs import (
    POINT_LOG,
    has_run,
    inference_job,
    load_files,
    load_lines,
    load_script,
    why_no_job,
)
from .local_runs import (
    LocalSearch,
    Runners,
    busy_note,
    fork_ranks,
    needs_more,
    ranks_request,
    run_points,
    share_processes,
    shared_search,
)
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
    """Both halves, the second also where the first one measured nothing."""
    failed: NothingFeasibleError | None = None
    try:
        yield from training
    except NothingFeasibleError as error:
        failed = error
    yield ""
    yield from search_inference(inference, request)
    if failed is not None:
        raise failed


_SCRIPT, _SUBMIT = "submission_script.sh", "submit_all.sh"
_LOOK_S = 0.5
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
            yield f"\nThe job of {first.name}, in {_SUBMIT} with the others:\n{text}"
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
        """Write jobs; if Slurm answers, queue and await them; then what was measured.

        The second value is True if nothing more will run.
        """
        prepared, search, request = self._prepared, self.search, self._request
        if not request.collect:
            self._write(self._job_files())
        is_bcm = prepared.question.settings.cluster.kind is ClusterKind.BCM
        ended: dict[str, str] = {}
        if is_bcm and not request.collect and is_slurm_here():
            ended = self._queue(listener)
        rows = [self._row_of_job(point, ended) for point in search.points]
        self._write_tables(rows)
        for run in recommend_runs(rows, 1):
            self._write(load_files(prepared, search, run.point))
        return rows, bool(ended) or not self._ready

    @property
    def _ready(self) -> tuple[SearchPoint, ...]:
        found = (one for one in self.search.runnable if not why_no_job(self._prepared, one))
        return tuple(found)[: self._limit]

    def _job_files(self) -> dict[Path, str]:
        scripts = [self.search.folder / one.name / _SCRIPT for one in self._ready]
        kind = self._prepared.question.settings.cluster.kind
        files = {self.search.folder / _SUBMIT: submit_all_text(kind, scripts)}
        for point in self._ready:
            run = self._prepared.run_of(point, self.search)
            files |= self._prepared.engine.files(run)
            files[run.folder / _SCRIPT] = inference_job(self._prepared, self.search, point)
        return files

    def _queue(self, listener: Listener) -> dict[str, str]:
        """Queue what was not measured yet, and wait; how each job ended, by the point's name."""
        runs = {one.name: self._prepared.run_of(one, self.search) for one in self._ready}
        if not self._request.fresh:
            read = self._prepared.engine.read
            runs = {n: run for n, run in runs.items() if isinstance(read(run), FailedTrial)}
        for run in runs.values():
            for name in (LATENCY_FILE, FIRST_TOKEN_FILE):
                (run.folder / name).unlink(missing_ok=True)
        numbers = _queue_jobs({name: run.folder / _SCRIPT for name, run in runs.items()})
        return {} if self._request.submit_only else _await_jobs(numbers, listener)

    def _row_of_job(self, point: SearchPoint, ended: Mapping[str, str]) -> InferenceRun:
        """Run of a point from its job's files; ``ended`` has the ends of awaited jobs."""
        prepared = self._prepared
        if why := point.why_not or why_no_job(prepared, point):
            return not_run(replace(point, why_not=why), prepared.bound_s)
        run = prepared.run_of(point, self.search)
        folder, outcome = run.folder, prepared.engine.read(run)
        if isinstance(outcome, FailedTrial) and point.name in ended:
            said = "".join(f": {line}" for line in _last_line(folder))
            detail = f"{outcome.failure.detail.rstrip('.')}; {ended[point.name]}{said}"
            outcome = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail=detail))
        elif isinstance(outcome, FailedTrial) and not has_run(folder):
            detail = f"{NOT_STARTED}: {folder / _SCRIPT} has left neither figures nor a log"
            why_not = Failure(kind=FailureKind.NO_STEPS, detail=detail)
            return not_run(point, prepared.bound_s, why_not)
        return run_of_outcome(prepared, point, outcome)

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
                f"Submit all: bash {shlex.quote(str(self.search.folder / _SUBMIT))}; the same "
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
            rows += self._measure(chosen, listener)
        self._write_tables(rows)
        write_answer(search.paths, "\n".join(self.result_text(rows)))
        return rows, True

    def _measure(
        self, chosen: tuple[SearchPoint, ...], listener: Listener
    ) -> Iterator[InferenceRun]:
        done = self._run_points(chosen, listener)
        if note := busy_note(done.records, len(self._prepared.cluster.devices)):
            listener(Note(text=note, warning=True))
        last = {record.trial.name: record for record in done.records}
        ruled_out = dict(done.ruled_out)
        for point in chosen:
            if point.name in last:
                yield run_of_outcome(self._prepared, point, last[point.name].outcome)
            elif point.name in ruled_out:
                why = needs_more(ruled_out[point.name])
                yield not_run(point, self._prepared.bound_s, why)

    def _run_points(self, points: tuple[SearchPoint, ...], listener: Listener) -> HpRuns:
        """All points, each in its own ranks or in a process with others, as the engine has it."""
        prepared = self._prepared
        runs = tuple(prepared.run_of(point, self.search) for point in points)
        planned = LocalSearch(
            points=points,
            runs=runs,
            paths=self.search.paths,
            cluster=prepared.cluster,
            request=ranks_request(prepared.cluster, runs[0]),
            time_limit_s=prepared.settings.time_limit_s,
            bound_s=prepared.bound_s,
        )
        runners: Callable[[LocalSearch], Runners] = fork_ranks
        if isinstance(engine := prepared.engine, SharingEngine):
            planned = shared_search(planned, engine)
            runners = partial(share_processes, engine=engine)
        size = f"{prepared.question.size_b:.10g}b"
        return run_points(planned, runners, listener, fresh=self._request.fresh, size=size)

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


def _last_line(folder: Path) -> tuple[str, ...]:
    """The last line on standard error of a run's latest job."""
    logs = sorted(folder.glob(f"{POINT_LOG}*.error"), key=lambda path: path.lstat().st_mtime)
    return file_tail(logs[-1], lines=1) if logs else ()


def _queue_jobs(scripts: Mapping[str, Path]) -> dict[str, int]:
    """Numbers of the jobs that run these scripts; if Slurm refuses one, there are none."""
    numbers: dict[str, int] = {}
    try:
        for name, script in scripts.items():
            log = f"--output={script.parent / 'slurm-%j.out'}"
            numbers[name] = submit_job((log, str(script)), {})
    except BaseException:
        if numbers:
            cancel_jobs(*numbers.values())
        raise
    return numbers


def _await_jobs(numbers: Mapping[str, int], listener: Listener) -> dict[str, str]:
    """Wait for all, and how each one ended; an interrupted search cancels them."""
    queue, ended = SlurmQueue(), dict[str, str]()
    for number in numbers.values():
        queue.add(number)
    waiting = dict(numbers)
    said_s = time.monotonic() + UNSAID_WAIT_S
    try:
        with stopping_on_signals():
            while waiting:
                time.sleep(_LOOK_S)
                for name, number in tuple(waiting.items()):
                    if (over := queue.why_over(number)) is not None:
                        del waiting[name]
                        ended[name] = over.detail
                        listener(Note(text=f"{name}: {over.detail}"))
                queued = [number for number in waiting.values() if queue.is_waiting(number)]
                if queued and time.monotonic() > said_s:
                    said_s = math.inf
                    listener(Note(text=f"Waiting for hosts: {pending_text(queued[0])}."))
    finally:
        if waiting:
            cancel_jobs(*waiting.values())
    return ended
