"""What a search would do, as text or JSON. Not: doing it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tabulate import tabulate

from .candidates import SearchCandidate
from .jobs import job_text
from .nemo_rules import whose_grid
from .prepare import Prepared

SCHEMA_VERSION = 1
_GIB = 2**30
_END = "Nothing was launched or written (--dry-run)."
_HEADERS = ("#", "tp", "pp", "cp", "ep", "mbs", "vp", "gas", "recompute", "s/step", "GiB", "name")


def dry_run_text(prepared: Prepared) -> Iterator[str]:
    """Model, notes, every candidate, the first one's job, and what would be written."""
    question, found = prepared.question, prepared.found
    yield (
        f"{question.name}: {question.model.layers} layers of {question.model.hidden}, global "
        f"batch {question.model.global_batch} of {question.settings.train.sequence} tokens"
        f"{_searched(prepared)}\nResults would go to {prepared.settings.train.logs}"
    )
    yield from (f"Note: {note}" for note in prepared.notes)
    if not prepared.settings.runs_training:
        yield "run_training_hp_search is False: only the base configuration would be written."
        yield _END
        return
    rows = [_row(number, one) for number, one in enumerate(found.candidates, 1)]
    yield "\n" + tabulate(rows, headers=_HEADERS, floatfmt=".4g")
    if prepared.machines is not None:
        text = job_text(question, found.candidates[0], found.nodes)
        yield f"\nThe job of #1, in submit_all.sh with {len(found.candidates) - 1} more:\n{text}"
    yield _END


def _searched(prepared: Prepared) -> str:
    question, found = prepared.question, prepared.found
    if not prepared.settings.runs_training:
        return ""
    return (
        f"; {len(found.candidates)} of {found.found} candidates ({whose_grid(question).value}) on "
        f"{found.nodes} x {question.gpus_per_node} ranks"
    )


def dry_run_document(prepared: Prepared) -> str:
    """The same as one JSON document."""
    question, found = prepared.question, prepared.found
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": question.name,
        "family": question.family.name,
        "model_size_b": question.size_b,
        "nodes": found.nodes,
        "gpus_per_node": question.gpus_per_node,
        "global_batch": question.model.global_batch,
        "grid": whose_grid(question).value,
        "found": found.found,
        "notes": list(prepared.notes),
        "base_config": question.base.to_dict(),
        "candidates": [_entry(prepared, one) for one in found.candidates],
    }
    return json.dumps(document, indent=2)


def _row(number: int, one: SearchCandidate) -> tuple[object, ...]:
    point, layout = one.point, one.layout
    kind = layout.recompute.value
    layers = point.recompute_layers
    return (
        number,
        *(point.tensor, point.pipeline, point.context, point.expert, point.micro_batch),
        *(layout.virtual_pipeline, layout.accumulation),
        kind if not layers else f"{kind} {layers}",
        *(one.step_s, None if one.peak_bytes is None else one.peak_bytes / _GIB),
        one.name,
    )


def _entry(prepared: Prepared, one: SearchCandidate) -> dict[str, object]:
    point, layout = one.point, one.layout
    launched = prepared.machines is not None
    return {
        "name": one.name,
        "tensor_parallel": point.tensor,
        "pipeline_parallel": point.pipeline,
        "virtual_pipeline": layout.virtual_pipeline,
        "context_parallel": point.context,
        "expert_parallel": point.expert,
        "data_parallel": layout.data_parallel,
        "micro_batch": point.micro_batch,
        "accumulation": layout.accumulation,
        "recompute": layout.recompute.value,
        "recompute_layers": point.recompute_layers,
        "zero_stage": layout.zero_stage,
        "predicted_step_s": one.step_s,
        "predicted_peak_bytes": one.peak_bytes,
        "job": job_text(prepared.question, one, prepared.found.nodes) if launched else None,
    }
