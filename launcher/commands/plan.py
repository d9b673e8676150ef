"""``plan``: every layout of a training, ruled out or ranked.

``plan --model M --cluster C --seq S --global-batch B [flags]``, or for a script as it is
``plan --cluster C [flags] -- python train.py …``; ``plan --inference`` is for text generation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.autotuner.space import RECOMPUTE_LAYERS
from autoconf_launch.core import (
    Architecture,
    Candidate,
    ConfigError,
    Layout,
    NothingFeasibleError,
    even_pipeline_split,
)
from autoconf_launch.tuning_spaces import cluster_template

from ..asked import CsvForm, PlanInferenceCommand, read_flags
from ..estimates import (
    INFERENCE,
    PlanAnswer,
    PlanRequest,
    Verifying,
    every_candidate,
    parse_plan,
    plan_answer,
    plan_clusters,
    plan_inference_answer,
    plan_inference_request,
    plan_only_rule,
)
from ..export import (
    FASOP_SEPARATOR,
    FasopTable,
    JobNode,
    NodeJob,
    Optimum,
    export_obstacle,
    export_optimum,
    export_row,
    fasop_rows,
    first_exportable,
)
from ..first_forward import (
    TracedScript,
    ask_plan,
    plan_by_pieces,
    split_command,
)
from ..pages import plan_page, write_page
from ..report import (
    RULES_IN_WORDS,
    plan_csv,
    plan_document,
    plan_inference_document,
    plan_inference_text,
    plan_json,
    plan_text,
    save_file,
    save_text,
    script_document,
    script_text,
    why_not_within,
    why_nothing,
    write_csv,
)

_CLUSTER_TEMPLATE = "--cluster-template"


def plan(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, unequal nodes, a row that a framework
            cannot express, an unwritable file.
        NothingFeasibleError: no layout fits or is within the limits; all has been yielded by then.
    """
    own, command = split_command(arguments)
    if INFERENCE in own:
        yield from plan_inference(arguments)
        return
    if _CLUSTER_TEMPLATE in own:
        if others := [word for word in own if word != _CLUSTER_TEMPLATE]:
            raise ConfigError(f"{_CLUSTER_TEMPLATE} only prints a file; omit {others[0]}.")
        yield cluster_template().rstrip("\n")
        return
    if command is not None:
        yield from _plan_script(own, command)
        return
    yield from _plan_known(parse_plan(own), None)


def plan_inference(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, or a model that generates no text so.
        NothingFeasibleError: no point fits or is within the bound; all has been yielded by then.
    """
    request = plan_inference_request(read_flags(PlanInferenceCommand, arguments))
    answer = plan_inference_answer(request)
    if request.json:
        yield json.dumps(plan_inference_document(answer), indent=2, allow_nan=False)
    else:
        yield plan_inference_text(answer)
    if answer.recommended is None:
        raise NothingFeasibleError(why_not_within(answer))


def _plan_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    asked = parse_plan(own, of_script=True)
    _require_batch(asked)
    request, script = ask_plan(asked, command)
    if request.others and script.architecture is None:
        raise ConfigError(
            f"Clusters are compared for models whose architecture is known, but "
            f"{script.why_pieces}; give one --cluster."
        )
    yield from _plan_known(request, script)


def _require_batch(request: PlanRequest) -> None:
    """A script's own batch grows with the GPUs, so that other numbers train something else.

    Raises:
        ConfigError: numbers of GPUs are compared without a batch.
    """
    if (request.others or request.gpus_needed) and "--global-batch" not in request.training.given:
        raise ConfigError(
            "Give --global-batch: the script's own batch grows with the GPUs, so different "
            "numbers of GPUs cannot be compared."
        )


def _plan_known(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    if script is not None and script.architecture is None:
        answers: tuple[PlanAnswer, ...] = (plan_by_pieces(request, script),)
    else:
        answers = plan_clusters(request) if request.others else (plan_answer(request),)
    first, written = answers[0], _Written()
    if not request.others:
        written = _export(request, (_optimum_of(first, row) for row in first.shown))
    if first.verifying is not None and request.output is not None:
        written = _export_runs(request, first.verifying, written, request.output)
    if request.csv is not None and first.parts and request.csv_form == CsvForm.FASOP:
        written = _write_fasop(request.csv, first, every_candidate(first.parts), written)
    elif request.csv is not None:
        save_file(request.csv, lambda file: plan_csv(file, *answers), "--csv")
    if request.html is not None:
        write_page(plan_page(answers, plan_text(*answers)), request.html)
    section = {} if script is None else {"script": script_document(script)}
    start = "" if script is None else f"{script_text(script)}\n\n"
    yield _output(
        request,
        written,
        lambda: plan_document(*answers) | section,
        lambda: start + plan_text(*answers),
    )
    if not any(answer.plan.best for answer in answers):
        raise NothingFeasibleError(why_nothing(*answers))


def _output(
    request: PlanRequest,
    written: _Written,
    document: Callable[[], dict[str, Any]],
    text: Callable[[], str],
) -> str:
    if request.training.json:
        paths = [str(path) for path in written.paths]
        more = {"exported": paths, "exported_row": written.row} if paths else {}
        return plan_json(document() | more)
    html = (f"Written: {request.html}",) if request.html else ()
    sentences = (*written.sentences, *html)
    return "\n".join((text(), "", *sentences) if sentences else (text(),))


def _write_fasop(
    path: Path, answer: PlanAnswer, rows: Sequence[Planned], written: _Written
) -> _Written:
    """Write FASOP's table, and report how its rows differ from the rows on the screen."""
    table = FasopTable(
        rows=tuple(rows), cluster=answer.cluster, workload=answer.workload, steps=answer.steps
    )
    lines = fasop_rows(table)
    save_file(path, lambda file: write_csv(file, lines, delimiter=FASOP_SEPARATOR), "--csv")
    return written.add(
        f"{path} has {len(rows):,} rows: the best layout of each mesh and micro-batch on FASOP's "
        "orders of nodes, those out of memory included. The table above has only the fastest "
        "that fits on each part of the cluster."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A row of the table, the files that it was written to, and sentences on all files."""

    row: int = 1
    paths: tuple[Path, ...] = ()
    sentences: tuple[str, ...] = ()

    def add(self, *sentences: str) -> _Written:
        return replace(self, sentences=(*self.sentences, *sentences))


def _export(request: PlanRequest, rows: Iterable[Optimum]) -> _Written:
    """Write the requested row, else the first that every framework can express, if any."""
    if request.output is None or not (optima := list(rows)):
        return _Written()
    row, skipped = request.row, ""
    if not row:
        row, skipped = first_exportable(optima, request.export)
    texts: dict[Path, str] = {}
    for name in request.export:
        exported = export_row(optima, row, name)
        texts[request.output / f"layout.{name}{exported.suffix}"] = exported.text
        for suffix, text in exported.files:
            texts[request.output / f"layout.{name}{suffix}"] = text
    for path, text in texts.items():
        save_text(path, text)
    written = _Written(row=row, paths=tuple(texts))
    if skipped:
        before = "Row 1" if row == 2 else f"Rows 1 to {row - 1}"
        written = written.add(f"{before} cannot be exported; of row 1: {skipped}.")
    return written.add(*(f"Row {row} is written to {path}." for path in texts))


def _export_runs(
    request: PlanRequest, verifying: Verifying, written: _Written, folder: Path
) -> _Written:
    """Write the layout of each verifying run, for each framework that can express it."""
    for number, one in enumerate(verifying.named, start=1):
        for name in request.export:
            exported, why = (
                export_optimum(one.optimum, name),
                export_obstacle(one.optimum, (name,)),
            )
            path = folder / f"run{number}.{name}{exported.suffix}"
            if why is None:
                save_text(path, exported.text)
            what = f"is written to {path}" if why is None else f"is not for {name}: {why}"
            written = written.add(f"Run {number} {what}.")
    return written


def _optimum_of(answer: PlanAnswer, row: Planned) -> Optimum:
    """A row for exports, with its nodes in the order of ranks if they are part of a cluster.

    Megatron-LM gets them by the order of its jobs; other frameworks get the slots.
    """
    layout = _with_pieces(answer.layout(row), answer.workload.model)
    optimum = _optimum(answer.request, layout, row.recompute_layers)
    if not row.order:
        return optimum
    kinds = answer.cluster.kinds
    nodes = [kinds[kind] for kind in row.order]
    job = NodeJob(
        workload=answer.workload,
        nodes=tuple(
            JobNode(name=one.name, gpus=len(one.node.devices), owned=one.node.rented_slots)
            for one in nodes
        ),
    )
    return replace(optimum, nodes=len(nodes), job=job)


def _with_pieces(layout: Layout, model: object) -> Layout:
    """The layout with the layers of each virtual stage if these differ."""
    if layout.virtual_pipeline == 1 or not isinstance(model, Architecture):
        return layout
    pieces = layout.pipeline_parallel * layout.virtual_pipeline
    split = even_pipeline_split(model.layers + model.encoder_layers, pieces)
    return layout if len(set(split)) == 1 else replace(layout, pipeline_split=split)


def _optimum(request: PlanRequest, layout: Layout, layers: int) -> Optimum:
    workload = request.training.workload
    some = () if layers == ALL_LAYERS else ((RECOMPUTE_LAYERS, layers),)
    rule = plan_only_rule(layout, layers, workload)
    return Optimum(
        name="row",
        candidate=Candidate(layout=layout, extras=some),
        nodes=len(request.training.cluster.nodes),
        precision=workload.precision,
        sequence_length=workload.sequence_length,
        optimizer=workload.optimizer.name,
        states=workload.states,
        plan_only=None if rule is None else RULES_IN_WORDS[rule],
    )
