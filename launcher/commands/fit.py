"""``fit``: does a training fit, part by part on every pipeline stage. Not: which layout is best.

``fit --model M --cluster C --seq S --global-batch B [layout] [--json]``, or for a script as it is
``fit --cluster C [flags] -- python train.py …``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from autoconf_launch.autotuner.cost.fitting import Proposal, Remedy, Verdict, remedies, verdict
from autoconf_launch.autotuner.cost.layout_memory import StageMemory, memory_bytes, peak_bytes
from autoconf_launch.autotuner.cost.layout_rules import broken_rule
from autoconf_launch.autotuner.cost.memory_layouts import ALL_LAYERS, MemoryLayouts
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, Layout, Recompute

from ..planner.cluster_choice import choose_cluster
from ..planner.fit_flags import FitRequest, parse_fit
from ..planner.model_choice import choose_model
from ..planner.step_price import step_seconds
from ..planner.training_choice import choose_training
from ..traced.asking import ask_fit, pieces_question
from ..traced.command import divided
from ..traced.fitting import fit_by_pieces
from ..traced.rooms import PeakOf, rooms
from ..verdict import DoesNotFitError
from ..views.fit_text import fit_document, fit_text
from ..views.pieces_text import pieces_fit_document, pieces_fit_text
from ..views.script_text import rooms_table, script_document, script_text

_GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """All that the two forms of the report say.

    ``memory`` has one row for each stage; ``step_s`` is a step of the layout as asked, were memory
    no limit, None where no time model covers it.
    """

    architecture: Architecture
    cluster: ClusterSpec
    asked: Proposal
    memory: StageMemory
    limit_bytes: int
    verdict: Verdict
    step_s: float | None
    remedies: tuple[Remedy, ...]


def fit(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name or an impossible layout.
        DoesNotFitError: the answer is no; everything has been yielded by then.
    """
    own, command = divided(arguments)
    if command is not None:
        yield from _fit_script(own, command)
        return
    request = parse_fit(own)
    answer = answer_of(request)
    as_json = request.training.json
    yield json.dumps(fit_document(answer), indent=2) if as_json else fit_text(answer)
    _require_fit(answer.verdict, float(answer.memory.total_SC.max()), answer.limit_bytes)


def _fit_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    request, script, cluster = ask_fit(own, command)
    training = request.training
    if script.architecture is None:
        pieces = fit_by_pieces(request, pieces_question(training, own, script, cluster))
        yield pieces_fit_document(pieces) if training.json else pieces_fit_text(pieces)
        _require_fit(pieces.row.verdict, pieces.row.peak_bytes, pieces.asked.limit_bytes)
        return
    answer = answer_of(request, script.architecture)
    found = rooms(answer.asked.layout, tuple(Recompute), _peak_of(answer), answer.limit_bytes)
    if training.json:
        document = {**fit_document(answer), "script": script_document(script, found)}
        yield json.dumps(document, indent=2)
    else:
        yield "\n\n".join((script_text(script), fit_text(answer), rooms_table(script, found)))
    _require_fit(answer.verdict, float(answer.memory.total_SC.max()), answer.limit_bytes)


def _peak_of(answer: FitAnswer) -> PeakOf:
    """The memory of other layouts of the same training."""

    def peak(layout: Layout) -> float:
        columns = MemoryLayouts.from_layouts([layout], [answer.asked.recompute_layers])
        return float(peak_bytes(columns, answer.architecture, answer.asked.setup)[0])

    return peak


def _require_fit(answer: Verdict, needed_bytes: float, limit_bytes: int) -> None:
    if answer is Verdict.NO:
        raise DoesNotFitError(
            f"it does not fit: a rank needs {needed_bytes / _GB:.1f} GB, a GPU has "
            f"{limit_bytes / _GB:.1f} GB."
        )


def answer_of(request: FitRequest, known: Architecture | None = None) -> FitAnswer:
    """Read names and files, predict, and look for remedies.

    Args:
        request: the flags.
        known: the model, where flags do not say it.

    Raises:
        ConfigError: an unknown name or an impossible layout.
    """
    training = request.training
    architecture = known or choose_model(training.model, dict(training.shapes))
    cluster = choose_cluster(request.training.cluster)
    asked = _proposal(request, cluster)
    columns = MemoryLayouts.from_layouts([asked.layout], [asked.recompute_layers])
    if why := broken_rule(asked.layout, columns, architecture, request.training.sequence):
        raise ConfigError(f"{why}.")
    stages = np.arange(request.pipeline)[:, None]
    memory = memory_bytes(columns, architecture, asked.setup, stages)
    limit_bytes = request.training.memory_bytes or cluster.least_memory_bytes
    answer = verdict(float(memory.total_SC.max()), limit_bytes)
    node = min(len(node.devices) for node in cluster.nodes)
    found: tuple[Remedy, ...] = ()
    seconds = partial(step_seconds, architecture, cluster)
    if answer is Verdict.NO:
        found = remedies(asked, architecture, limit_bytes, node, seconds)
    return FitAnswer(
        architecture=architecture,
        cluster=cluster,
        asked=asked,
        memory=memory,
        limit_bytes=limit_bytes,
        verdict=answer,
        step_s=seconds([asked])[0],
        remedies=found,
    )


def _proposal(request: FitRequest, cluster: ClusterSpec) -> Proposal:
    """The layout with data parallelism and accumulation from the cluster and the global batch."""
    world, others = len(cluster.devices), request.tensor * request.pipeline * request.context
    if world % others:
        valid = " ".join(str(n) for n in range(1, min(world, 4096) + 1) if world % n == 0)
        raise ConfigError(
            f"tp={request.tensor} x pp={request.pipeline} x cp={request.context} = {others} does "
            f"not divide {world} GPUs; valid products: {valid}."
        )
    data = world // others
    once = data * request.micro_batch
    if request.training.global_batch % once:
        raise ConfigError(
            f"--global-batch {request.training.global_batch} is no multiple of micro-batch "
            f"{request.micro_batch} x {data} data-parallel ranks = {once}; "
            f"valid: {once}, {2 * once}, {3 * once}, …"
        )
    layout = Layout(
        data_parallel=data,
        tensor_parallel=request.tensor,
        pipeline_parallel=request.pipeline,
        virtual_pipeline=request.virtual,
        context_parallel=request.context,
        expert_parallel=request.expert,
        zero_stage=request.zero,
        micro_batch=request.micro_batch,
        accumulation=request.training.global_batch // once,
        recompute=request.recompute,
        sequence_parallel=request.sequence_parallel,
        offload=request.offload,
    )
    layers = request.recompute_layers
    return Proposal(
        layout=layout,
        setup=choose_training(request.training, cluster),
        recompute_layers=ALL_LAYERS if layers is None else layers,
    )
