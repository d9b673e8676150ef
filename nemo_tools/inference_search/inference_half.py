"""The inference half of ``search``: dry runs, jobs, runs on this machine, and their results."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tabulate import tabulate

from autoconf_launch.autotuner.space import FailedTrial, Outcome
from autoconf_launch.core import (
    GIB,
    Failure,
    FailureKind,
    NothingFeasibleError,
    plural,
)
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.hosts import is_slurm_here
from autoconf_launch.launcher.launch import file_tail
from autoconf_launch.launcher.trackers import check_tracking
from autoconf_launch.launcher.tuning import write_answer

from ..report import NOT_STARTED
from ..search import SEARCH_SCHEMA_VERSION, SHEBANG, ClusterKind, SearchRequest, stderr_view
from ..search import check_paths as require_paths
from .cluster_runs import await_jobs, queue_jobs
from .engines import FIRST_TOKEN_FILE, LATENCY_FILE, SharingEngine
from .jobs import POINT_LOG, has_run, inference_job, why_no_job
from .load_tests import load_files, load_lines, load_script
from .local_runs import (
    DoneGenerations,
    LocalSearch,
    Runners,
    busy_note,
    fork_ranks,
    needs_more,
    ranks_request,
    run_points,
)
from .points import SearchPoint, model_name
from .prepared import LengthSearch, PreparedInference
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
from .shared_runs import share_processes, shared_search

_SCRIPT, _SUBMIT = "submission_script.sh", "submit_all.sh"


def search_inference(prepared: PreparedInference, request: SearchRequest) -> Iterator[str]:
    """Text to print; lines on single runs go to standard error as they come.

    Raises:
        ConfigError: a path that jobs need is missing, or a file cannot be written.
        NothingFeasibleError: no point was measured, or none within the bound; every run's row is
            written by then.
    """
    if request.dry_run:
        if request.json:
            yield json.dumps(_dry_document(prepared), indent=2)
        else:
            yield from _dry_text(prepared, _length(prepared, request))
    elif prepared.is_local:
        yield from _run_here(prepared, request)
    else:
        yield from _write_jobs(prepared, request)


def _length(prepared: PreparedInference, request: SearchRequest) -> int:
    """Rows that are listed; 0: all."""
    return prepared.settings.top_n if request.top is None else request.top


_HEADERS = (
    "#",
    "tp",
    "pp",
    "bs",
    "latency ms",
    "samples/s/GPU",
    "TTFT ms",
    "GiB",
    "name or reason",
)


def _dry_text(prepared: PreparedInference, top: int) -> Iterator[str]:
    yield _title(prepared)
    yield from (f"Note: {note}" for note in prepared.notes)
    for search in prepared.searches:
        yield f"\n{_about(prepared, search)}\n{_point_table(search.points, top)}"
        if not prepared.is_local and search.runnable:
            first = search.runnable[0]
            text = inference_job(prepared, search, first)
            yield f"\nThe job of {first.name}, in {_SUBMIT} with the others:\n{text}"
            if test := load_script(prepared, search, first):
                yield f"Its load test, submitted only if it is recommended:\n{test}"


def _title(prepared: PreparedInference) -> str:
    question = prepared.question
    return (
        f"Inference of {model_name(question)} with engine {prepared.engine_name} "
        f"({question.settings.grid.value} grid)"
    )


def _about(prepared: PreparedInference, search: LengthSearch) -> str:
    task, many = search.points[0].task, len(search.runnable)
    return (
        f"{many} of {len(search.points)} points, {task.input_len} tokens in and "
        f"{task.output_len} out, in {task.precision.value}; results: {search.folder}"
    )


def _point_table(points: Sequence[SearchPoint], top: int) -> str:
    rows = [_point_row(number, one) for number, one in enumerate(points, 1)]
    table = tabulate(rows[: top or None], headers=_HEADERS, floatfmt=".4g")
    more = len(rows) - top if top else 0
    return f"{table}\n… and {more} more; --top 0 lists all." if more > 0 else table


def _point_row(number: int, one: SearchPoint) -> tuple[object, ...]:
    layout, found = one.layout, one.predicted
    shape = (layout.tensor_parallel, layout.pipeline_parallel, layout.micro_batch)
    if found is None:
        return (number, *shape, None, None, None, None, one.why_not)
    return (
        *(number, *shape, 1e3 * found.latency_s, found.samples_per_s_per_gpu),
        *(1e3 * found.ttft_s, found.peak_bytes / GIB, one.why_not or one.name),
    )


def _dry_document(prepared: PreparedInference) -> dict[str, object]:
    return {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": model_name(prepared.question),
        "engine": prepared.engine_name,
        "grid": prepared.question.settings.grid.value,
        "notes": list(prepared.notes),
        "points": [
            {
                **run_entry(not_run(point, prepared.bound_s)),
                "reason": point.why_not,
                "job": None
                if prepared.is_local or point.why_not
                else inference_job(prepared, search, point),
            }
            for search in prepared.searches
            for point in search.points
        ],
        "load_tests": [
            load_script(prepared, search, search.runnable[0]) or None
            for search in prepared.searches
            if search.runnable
        ],
    }


def _write_jobs(prepared: PreparedInference, request: SearchRequest) -> Iterator[str]:
    """Write jobs; where Slurm answers, queue them; then the tables of what was measured."""
    require_paths(prepared.question.settings, needs_data=False)
    documents, wrong = [], list(prepared.refused)
    is_bcm = prepared.question.settings.cluster.kind is ClusterKind.BCM
    queues = is_bcm and not request.collect and is_slurm_here()
    for search in prepared.searches:
        if not request.collect:
            _write(search, _search_files(prepared, search))
        ended = _queue(prepared, search, request) if queues else {}
        rows = [_row_of_job(prepared, search, point, ended) for point in search.points]
        write_tables(search, rows, prepared.settings.top_n)
        _write(search, _load_files(prepared, search, rows))
        documents.append(_result_document(prepared, search, rows))
        if ended or not _ready(prepared, search):
            wrong += [_why_nothing(prepared, search, rows)]
        if not request.json:
            yield from _cluster_text(prepared, search, rows, _length(prepared, request))
    if request.json:
        yield _whole_document(prepared, documents)
    for sentence in filter(None, wrong):
        raise NothingFeasibleError(sentence)


def _load_files(
    prepared: PreparedInference, search: LengthSearch, rows: Sequence[InferenceRun]
) -> dict[Path, str]:
    """The test under load of what is recommended, and what it has measured by now."""
    best = [run.point for run in recommend_runs(rows, 1)]
    return {path: text for one in best for path, text in load_files(prepared, search, one).items()}


def _search_files(prepared: PreparedInference, search: LengthSearch) -> dict[Path, str]:
    """Every job's script and what it reads, and the script that submits all."""
    ready = _ready(prepared, search)
    files = {search.folder / _SUBMIT: _submit_all(prepared, search, ready)}
    for point in ready:
        files |= _job_files(prepared, search, point)
    return files


def _ready(prepared: PreparedInference, search: LengthSearch) -> tuple[SearchPoint, ...]:
    """Points that have a job."""
    limit = prepared.question.settings.train.limit_runs
    found = (one for one in search.runnable if not why_no_job(prepared, one))
    return tuple(found)[: limit or None]


def _queue(
    prepared: PreparedInference, search: LengthSearch, request: SearchRequest
) -> dict[str, str]:
    """Queue what was not measured yet, and wait; how each job ended, by the point's name."""
    runs = {one.name: prepared.run_of(one, search) for one in _ready(prepared, search)}
    if not request.fresh:
        runs = {n: run for n, run in runs.items() if _is_failed(prepared.engine.read(run))}
    for run in runs.values():
        for name in (LATENCY_FILE, FIRST_TOKEN_FILE):
            (run.folder / name).unlink(missing_ok=True)
    numbers = queue_jobs({name: run.folder / _SCRIPT for name, run in runs.items()})
    if request.submit_only:
        return {}
    return await_jobs(numbers, stderr_view(quiet=request.quiet).handle)


def _is_failed(outcome: Outcome) -> bool:
    return isinstance(outcome, FailedTrial)


def _job_files(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> Mapping[Path, str]:
    run = prepared.run_of(point, search)
    script = {run.folder / _SCRIPT: inference_job(prepared, search, point)}
    return {**prepared.engine.files(run), **script}


def _row_of_job(
    prepared: PreparedInference,
    search: LengthSearch,
    point: SearchPoint,
    ended: Mapping[str, str],
) -> InferenceRun:
    """Run of a point from its job's files; ``ended`` has the ends of awaited jobs."""
    if why := point.why_not or why_no_job(prepared, point):
        return not_run(_refuse(point, why), prepared.bound_s)
    folder = prepared.run_of(point, search).folder
    outcome = prepared.engine.read(prepared.run_of(point, search))
    if isinstance(outcome, FailedTrial) and not has_run(folder) and point.name not in ended:
        detail = f"{NOT_STARTED}: {folder / _SCRIPT} has left neither figures nor a log"
        return not_run(point, prepared.bound_s, Failure(kind=FailureKind.NO_STEPS, detail=detail))
    if isinstance(outcome, FailedTrial) and point.name in ended:
        said = "".join(f": {line}" for line in _last_line(folder))
        detail = f"{outcome.failure.detail.rstrip('.')}; {ended[point.name]}{said}"
        failure = Failure(kind=FailureKind.CRASHED, detail=detail)
        outcome = FailedTrial(failure=failure)
    return run_of_outcome(prepared, point, outcome)


def _last_line(folder: Path) -> tuple[str, ...]:
    """The last line on standard error of a run's latest job."""
    logs = sorted(folder.glob(f"{POINT_LOG}*.error"), key=lambda path: path.lstat().st_mtime)
    return file_tail(logs[-1], lines=1) if logs else ()


def _refuse(point: SearchPoint, why: str) -> SearchPoint:
    return SearchPoint(name=point.name, task=point.task, predicted=point.predicted, why_not=why)


_EACH = {
    ClusterKind.BCM: 'sbatch --parsable "$job" || exit 1',
    ClusterKind.BCP: 'bash "$job" || echo "failed: $job" >&2',
}


def _submit_all(
    prepared: PreparedInference, search: LengthSearch, points: Sequence[SearchPoint]
) -> str:
    jobs = (shlex.quote(str(search.folder / one.name / _SCRIPT)) for one in points)
    listed = " \\\n".join(f"  {job}" for job in jobs) or "  "
    each = _EACH[prepared.question.settings.cluster.kind]
    return f"{SHEBANG}\nfor job in \\\n{listed}\ndo\n  {each}\ndone\n"


def _cluster_text(
    prepared: PreparedInference, search: LengthSearch, rows: Sequence[InferenceRun], top: int
) -> Iterator[str]:
    yield _title(prepared)
    yield from (f"Note: {note}" for note in prepared.notes)
    yield _about(prepared, search)
    if any(row.measured for row in rows):
        yield from _result_text(search, rows, top)
        for best in recommend_runs(rows, 1):
            yield from load_lines(prepared, search, best.point)
        return
    yield _point_table([row.point for row in rows], top)
    if _ready(prepared, search):
        yield (
            f"Submit all: bash {shlex.quote(str(search.folder / _SUBMIT))}; the same search then "
            f"reads what they measured into {search.summary}"
        )


def _run_here(prepared: PreparedInference, request: SearchRequest) -> Iterator[str]:
    """Run every point of every pair of lengths, and report each pair."""
    check_tracking(prepared.question.settings.tracking)
    view = stderr_view(quiet=request.quiet)
    documents, wrong = [], list(prepared.refused)
    runs_any = any(search.runnable for search in prepared.searches)
    for note in prepared.notes if runs_any else ():
        view.handle(Note(text=note))
    for search in prepared.searches:
        rows = _run_search(prepared, search, request, view.handle)
        write_tables(search, rows, prepared.settings.top_n)
        documents.append(_result_document(prepared, search, rows))
        lines = tuple(_result_text(search, rows, _length(prepared, request)))
        write_answer(search.paths, "\n".join(lines))
        if not request.json:
            yield from lines
        wrong += [_why_nothing(prepared, search, rows)]
    if request.json:
        yield _whole_document(prepared, documents)
    for sentence in filter(None, wrong):
        raise NothingFeasibleError(sentence)


def _run_search(
    prepared: PreparedInference, search: LengthSearch, request: SearchRequest, listener: Listener
) -> list[InferenceRun]:
    limit = prepared.question.settings.train.limit_runs
    chosen = search.runnable[: limit or None]
    bound_s = prepared.bound_s
    rows = [not_run(point, bound_s) for point in search.points if point.why_not]
    rest = [point for point in search.runnable if point not in chosen]
    rows += [not_run(_refuse(one, f"limit_search_runs is {limit}"), bound_s) for one in rest]
    if not chosen:
        return rows
    done = _run_points(prepared, search, chosen, request, listener)
    if note := busy_note(done.records, len(prepared.cluster.devices)):
        listener(Note(text=note, warning=True))
    last = {record.trial.name: record for record in done.records}
    ruled_out = dict(done.ruled_out)
    for point in chosen:
        if point.name in last:
            rows.append(run_of_outcome(prepared, point, last[point.name].outcome))
        elif point.name in ruled_out:
            rows.append(not_run(point, bound_s, needs_more(ruled_out[point.name])))
    return rows


def _run_points(
    prepared: PreparedInference,
    search: LengthSearch,
    points: tuple[SearchPoint, ...],
    request: SearchRequest,
    listener: Listener,
) -> DoneGenerations:
    """All points, each in ranks of its own or in a process with others, as the engine has it."""
    runs = tuple(prepared.run_of(point, search) for point in points)
    planned = LocalSearch(
        points=points,
        runs=runs,
        paths=search.paths,
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
    return run_points(planned, runners, listener, fresh=request.fresh, size=size)


def write_tables(search: LengthSearch, rows: Sequence[InferenceRun], top_n: int) -> None:
    """Every run's row, what is recommended, and the front.

    Raises:
        ResultsFolderError: a file cannot be written.
    """
    texts = {
        "inference_sweep_configs.csv": configs_csv(search.points),
        "final_output.csv": final_csv(rows),
        "analysis_summary.log": analysis_log(rows, top_n),
        "pareto.csv": pareto_csv(rows),
    }
    _write(search, {search.summary / name: text for name, text in texts.items()})


def _write(search: LengthSearch, texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        search.paths.write(path, text)


_RESULT = (
    *("#", "tp", "pp", "bs", "latency ms", "samples/s/GPU", "TTFT ms", "ms/token", "GiB"),
    "predicted",
)


def _result_text(search: LengthSearch, rows: Sequence[InferenceRun], top: int) -> Iterator[str]:
    measured = [run for run in order_runs(rows) if run.latency_s is not None]
    failed = [run for run in rows if run.latency_s is None]
    shown = measured[: top or None]
    table = [_result_row(number, run) for number, run in enumerate(shown, 1)]
    if table:
        yield tabulate(table, headers=_RESULT, floatfmt=".4g")
    if more := len(measured) - len(shown):
        yield f"… and {more} more; --top 0 lists all."
    best = recommend_runs(rows, 1)
    if best:
        yield (
            f"Recommended: {best[0].point.name}, {best[0].throughput_per_gpu:.4g} samples/s/GPU "
            f"at {1e3 * (best[0].latency_s or 0.0):.4g} ms"
        )
    line = prediction_line(rows)
    if line:
        yield line
    if failed:
        yield f"{plural(len(failed), 'point')} not measured, such as {failed[0].point.name}: " + (
            failed[0].reason
        )
    yield f"Results: {search.summary}"


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


def _result_document(
    prepared: PreparedInference, search: LengthSearch, rows: Sequence[InferenceRun]
) -> dict[str, object]:
    best = recommend_runs(rows, prepared.settings.top_n)
    return {
        "folder": str(search.folder),
        "recommended": [run.point.name for run in best],
        "runs": [run_entry(run) for run in order_runs(rows)],
    }


def _whole_document(prepared: PreparedInference, searches: list[dict[str, object]]) -> str:
    document = {
        "schema_version": SEARCH_SCHEMA_VERSION,
        "model": model_name(prepared.question),
        "engine": prepared.engine_name,
        "notes": list(prepared.notes),
        "searches": searches,
    }
    return json.dumps(document, indent=2)


def _why_nothing(
    prepared: PreparedInference, search: LengthSearch, rows: Sequence[InferenceRun]
) -> str:
    """Why nothing is recommended; empty where something is."""
    if any(run.satisfies for run in rows):
        return ""
    nearest = nearest_run(rows)
    if nearest is None:
        first = rows[0]
        why = f"{first.point.name}: {first.reason}".rstrip(".")
        return f"No point could be measured. {why}; see {search.summary}."
    return (
        f"No point is within max_latency_ms = {1e3 * prepared.bound_s:g}; the nearest is "
        f"{nearest.point.name} with {1e3 * (nearest.latency_s or 0.0):.4g} ms. See "
        f"{search.summary}."
    )
