"""``plan``: every layout of a training, ruled out or ranked.

``plan --model M --cluster C --seq S --global-batch B [flags]``, or for a script as it is
``plan --cluster C [flags] -- python train.py …``; ``plan --inference`` is for text generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.mixed import MixedRow
from autoconf_launch.autotuner.space import RECOMPUTE_LAYERS
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Layout,
    NothingFeasibleError,
)
from autoconf_launch.tuning_spaces import cluster_template

from ..asked import CsvForm
from ..estimates import (
    MixedAnswer,
    PlanAnswer,
    PlanRequest,
    Verifying,
    every_candidate,
    mixed_answer,
    parse_plan,
    plan_answer,
    plan_clusters,
    plan_only_rule,
    require_equal_nodes,
    require_rates,
    write_text,
)
from ..export import (
    FASOP_SEPARATOR,
    NATIVE,
    FasopTable,
    JobNode,
    NodeJob,
    Optimum,
    export_obstacle,
    export_optimum,
    export_row,
    fasop_rows,
    first_exportable,
    first_runnable,
)
from ..exporters import SUFFIXES
from ..first_forward import (
    TracedScript,
    ask_plan,
    plan_by_pieces,
    split_command,
    why_no_pieces,
)
from ..inference import INFERENCE
from ..machine import is_cpu
from ..pages import HtmlPage, plan_page, write_page
from ..report import (
    ROUGH_CPU,
    RULES_IN_WORDS,
    clusters_csv,
    clusters_document,
    clusters_text,
    mixed_document,
    mixed_text,
    pieces_plan_document,
    pieces_plan_text,
    plan_csv,
    plan_document,
    plan_json,
    plan_text,
    save_file,
    script_document,
    script_text,
    why_nothing,
    why_nothing_mixed,
    write_csv,
)
from .inference import plan_inference

_CLUSTER_TEMPLATE = "--cluster-template"
_TITLE = "autoconf-launch: layouts of a script"


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


def _plan_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    asked = parse_plan(own, of_script=True)
    _require_batch(asked)
    request, script = ask_plan(asked, command)
    if script.architecture is not None:
        yield from _plan_known(request, script)
        return
    if request.others:
        raise ConfigError(
            f"Clusters are compared for models whose architecture is known, but "
            f"{script.why_pieces}; give one --cluster."
        )
    require_equal_nodes(request.training.cluster)
    require_rates(request.training.cluster)
    _refuse_runs(request)
    found = plan_by_pieces(request, script)
    written = _export(request, [(row.layout, ALL_LAYERS) for row in found.best])
    if request.html is not None:
        write_page(HtmlPage(title=_TITLE, answer=pieces_plan_text(found)), request.html)
    if request.training.json:
        yield plan_json({**pieces_plan_document(found), **_export_document(written)})
    else:
        yield "\n".join((pieces_plan_text(found), *_sentences(request, written)))
    if not found.best:
        raise NothingFeasibleError(why_no_pieces(found))


def _refuse_runs(request: PlanRequest) -> None:
    """Real runs correct what is predicted by a model's shapes on equal nodes.

    Raises:
        ConfigError: there are some, or some are asked for.
    """
    flags = ("--measured", "--verify", "--verify-budget")
    for flag in (name for name in flags if name in request.training.given):
        raise ConfigError(
            f"{flag} needs a --model whose architecture is known and equal nodes; omit it."
        )


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


def _plan_clusters(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    answers = plan_clusters(request)
    forms = _Forms(
        csv=lambda file: clusters_csv(answers, file),
        document=lambda: clusters_document(answers),
        text=lambda: clusters_text(answers),
    )
    yield _tell(request, script, answers, forms, _Written())
    if not any(answer.plan.best for answer in answers):
        raise NothingFeasibleError("no cluster has a layout that fits and is within the limits.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forms:
    """An answer in each form, and sentences below its text."""

    csv: Callable[[TextIO], None]
    document: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    notes: tuple[str, ...] = ()


def _tell(
    request: PlanRequest,
    script: TracedScript | None,
    answers: Sequence[PlanAnswer | MixedAnswer],
    forms: _Forms,
    written: _Written,
) -> str:
    """Write the files that are asked for; what is printed."""
    if request.csv is not None:
        save_file("--csv", request.csv, forms.csv)
    if request.html is not None:
        write_page(plan_page(answers, forms.text()), request.html)
    if request.training.json:
        section = {} if script is None else {"script": script_document(script)}
        return plan_json({**forms.document(), **section, **_export_document(written)})
    text = "\n".join((forms.text(), *forms.notes, *_sentences(request, written)))
    return text if script is None else f"{script_text(script)}\n\n{text}"


def _plan_known(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    if request.others:
        yield from _plan_clusters(request, script)
        return
    if _is_mixed(request):
        yield from _plan_mixed(request, script)
        return
    answer = plan_answer(request)
    best = answer.plan.best
    rows = [(one.layout, one.recompute_layers) for one in (*best, *answer.plan.apart)]
    written = _export(request, rows)
    if answer.verifying is not None and request.output is not None:
        written = _export_runs(request, answer.verifying, written, request.output)
    forms = _Forms(
        csv=lambda file: plan_csv(answer, file),
        document=lambda: plan_document(answer),
        text=lambda: plan_text(answer),
        notes=(ROUGH_CPU,) if is_cpu(request.training.cluster) else (),
    )
    yield _tell(request, script, (answer,), forms, written)
    if not best:
        raise NothingFeasibleError(why_nothing(answer))


def _is_mixed(request: PlanRequest) -> bool:
    """Whether parts of the cluster are ranked, stage by stage, instead of all its layouts."""
    asks = request.pareto or request.layer_times is not None
    is_fasop = request.csv_form == CsvForm.FASOP
    return asks or is_fasop or not request.training.cluster.are_nodes_equal


def _plan_mixed(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    _refuse_runs(request)
    answer = mixed_answer(request)
    written = _export_mixed(answer)
    is_fasop = request.csv_form == CsvForm.FASOP
    every = every_candidate(answer) if is_fasop else ()
    forms = _Forms(
        csv=lambda file: _mixed_table(answer, every, file),
        document=lambda: mixed_document(answer),
        text=lambda: mixed_text(answer),
        notes=tuple(_csv_note(request, every)) if is_fasop else (),
    )
    yield _tell(request, script, (answer,), forms, written)
    if not answer.rows:
        raise NothingFeasibleError(why_nothing_mixed(answer))


def _csv_note(request: PlanRequest, every: Sequence[MixedRow]) -> Iterator[str]:
    """How the rows of FASOP's table differ from those on the screen."""
    yield (
        f"{request.csv} has {len(every):,} rows: the best layout of each mesh and micro-batch on "
        "FASOP's orders of nodes, those out of memory included. The table above has only the "
        "fastest that fits on each part of the cluster."
    )


def _mixed_table(answer: MixedAnswer, every: Sequence[MixedRow], file: TextIO) -> None:
    if answer.request.csv_form == CsvForm.FULL:
        plan_csv(answer, file)
        return
    table = FasopTable(
        rows=tuple(every),
        cluster=answer.request.training.cluster,
        workload=answer.workload,
        steps=answer.steps,
    )
    write_csv(file, fasop_rows(table), delimiter=FASOP_SEPARATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A row of the table, the files that it was written to, and why it is not the first.

    ``runs``: a sentence on each verifying run and framework.
    """

    row: int = 1
    paths: tuple[Path, ...] = ()
    skipped: str = ""
    runs: tuple[str, ...] = ()


def _export(request: PlanRequest, rows: Sequence[tuple[Layout, int]]) -> _Written:
    """Write the row asked for, for each framework; nothing where the table is empty."""
    if not rows or request.output is None:
        return _Written()
    optima = [_optimum(request, layout, layers) for layout, layers in rows]
    row = request.row or (first_runnable(optima) if NATIVE in request.export else 1)
    return _write_row(request, optima, row)


def _export_runs(
    request: PlanRequest, verifying: Verifying, written: _Written, folder: Path
) -> _Written:
    """Write the layout of each verifying run, for each framework that can express it."""
    said: list[str] = []
    for number, one in enumerate(verifying.named, start=1):
        for name in request.export:
            path = folder / f"run{number}.{name}{SUFFIXES[name]}"
            why = export_obstacle(one.optimum, (name,))
            if why is None:
                write_text(export_optimum(one.optimum, name).text, path)
            written_text = f"is written to {path}" if why is None else f"is not for {name}: {why}"
            said.append(f"Run {number} {written_text}.")
    return replace(written, runs=tuple(said))


def _export_mixed(answer: MixedAnswer) -> _Written:
    """Write the row asked for, or the first that every framework can express.

    Megatron-LM gets the ranks' nodes by the order of its jobs; other frameworks get the slots.
    """
    request = answer.request
    if not answer.rows or request.output is None:
        return _Written()
    optima = [_mixed_optimum(answer, row) for row in answer.rows]
    row, skipped = first_exportable(optima, request.export)
    written = _write_row(request, optima, request.row or row)
    return written if request.row else replace(written, skipped=skipped)


def _mixed_optimum(answer: MixedAnswer, row: MixedRow) -> Optimum:
    optimum = _optimum(answer.request, answer.layout(row), row.recompute_layers)
    cluster = answer.request.training.cluster
    nodes = [cluster.kinds[kind].node for kind in row.order]
    job = NodeJob(
        workload=answer.workload,
        nodes=tuple(
            JobNode(name=answer.kinds[kind].name, gpus=len(node.devices), owned=node.rented_slots)
            for kind, node in zip(row.order, nodes, strict=True)
        ),
    )
    return replace(optimum, nodes=len(nodes), job=job)


def _write_row(request: PlanRequest, optima: Sequence[Optimum], row: int) -> _Written:
    assert request.output is not None
    texts: dict[Path, str] = {}
    for name in request.export:
        exported = export_row(optima, row, name)
        texts[request.output / f"layout.{name}{SUFFIXES[name]}"] = exported.text
        for suffix, text in exported.files:
            texts[request.output / f"layout.{name}{suffix}"] = text
    for path, text in texts.items():
        write_text(text, path)
    return _Written(row=row, paths=tuple(texts))


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
        plan_only=None if rule is None else RULES_IN_WORDS[rule],
    )


def _sentences(request: PlanRequest, written: _Written) -> Iterator[str]:
    if written.paths or request.html:
        yield ""
    if written.skipped:
        rows = "Row 1" if written.row == 2 else f"Rows 1 to {written.row - 1}"
        yield f"{rows} cannot be exported; of row 1: {written.skipped}."
    yield from (f"Row {written.row} is written to {path}." for path in written.paths)
    yield from written.runs
    if request.html:
        yield f"Written: {request.html}"


def _export_document(written: _Written) -> dict[str, Any]:
    if not written.paths:
        return {}
    return {"exported": [str(path) for path in written.paths], "exported_row": written.row}
