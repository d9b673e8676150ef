"""What a search found, as one JSON document. Not: its text and tables (search_report)."""

from __future__ import annotations

import json
from pathlib import Path

from ..search_report.outcome import SearchOutcome, SearchRun
from .dry_run import SCHEMA_VERSION


def result_document(name: str, outcome: SearchOutcome) -> str:
    """Every run, measured ones first and the fastest of them on top."""
    measured = sorted((run for run in outcome.runs if run.step_s), key=lambda run: run.step_s or 0)
    failed = [run for run in outcome.runs if not run.step_s]
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": name,
        "nodes": outcome.nodes,
        "gpus_per_node": outcome.gpus_per_node,
        "best": measured[0].name if measured else None,
        "notes": list(outcome.notes),
        "runs": [_entry(run) for run in (*measured, *failed)],
    }
    return json.dumps(document, indent=2)


def base_alone_document(name: str, base_config: Path) -> str:
    """Where nothing is searched: the file alone."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": name,
        "base_config": str(base_config),
    }
    return json.dumps(document, indent=2)


def _entry(run: SearchRun) -> dict[str, object]:
    point = run.point
    return {
        "name": run.name,
        "tensor_parallel": point.tensor,
        "pipeline_parallel": point.pipeline,
        "context_parallel": point.context,
        "expert_parallel": point.expert,
        "micro_batch": point.micro_batch,
        "recompute_layers": point.recompute_layers,
        "knobs": dict(run.knobs),
        "global_batch": run.global_batch,
        "steps": run.steps if run.extrapolated_from is None else 0,
        "extrapolated_from_micro_batches": run.extrapolated_from,
        "step_s": run.step_s,
        "step_spread_s": run.step_spread_s,
        "peak_bytes": run.peak_bytes,
        "failure": None if run.failure is None else run.failure.kind.value,
        "detail": None if run.failure is None else run.failure.detail,
    }
