"""The answer of ``recommend`` as text and as a JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.sizing import Sensitivity
from autoconf_launch.core import encode, plural

from .cells import (
    count_text,
    gib,
    memory_size,
    number_text,
    percent,
    step_time_text,
    trainer_text,
)
from .measurements import (
    training_runs_document,
    training_runs_text,
    verifying_document,
    verifying_text,
)
from .plan_reasons import name_of
from .tables import each, rows_text

if TYPE_CHECKING:
    from autoconf_launch.autotuner.sizing import Achieved, Outlook

    from ..estimates import GpusForDays, Recommendation, Verifying

RECOMMEND_SCHEMA_VERSION = 3


def recommend_text(answer: Recommendation) -> str:
    """The planner's answer, the formula's, the model, the assumptions of both, and notes."""
    first, *how = _planner(answer)
    if _has_numbers(answer):
        first += f", {trainer_text(answer.trainer)}"
    blocks = ["\n".join([first, *how]), "\n".join(_formula(answer)), _model(answer)]
    if answer.planner.outlook:
        blocks.append(_assumptions(answer.planner.outlook))
    if answer.measured:
        blocks.append(training_runs_text(answer.measured))
    if answer.verifying and answer.planner.outlook:
        blocks.append(_verifying(answer.verifying, answer, answer.planner.outlook))
    if answer.notes:
        blocks.append("\n".join(f"note: {note}" for note in answer.notes))
    return "\n\n".join(blocks)


def _has_numbers(answer: Recommendation) -> bool:
    part = answer.planner
    return bool(part.outlook or part.size_b is not None or answer.needed)


def recommend_document(answer: Recommendation) -> str:
    """The JSON document."""
    document = {
        "schema_version": RECOMMEND_SCHEMA_VERSION,
        "trainer": answer.trainer.name,
        "family": answer.family.name,
        "max_days": answer.max_days,
        "gpus_needed": _needed_document(answer),
        "formula": {
            "generation": _generation(answer),
            "model_size_b": answer.size_b,
            "training_days": answer.days,
            "nearest_predefined": answer.nearest,
            "gpus": answer.budget.gpus,
            "tflops_per_gpu": answer.budget.tflops_per_gpu,
            "tflops_predicted": answer.is_rate_predicted,
            "tokens_b": answer.budget.tokens_b,
            "training_days_exact": answer.exact_days,
        },
        "model": _model_document(answer),
        "planner": _planner_document(answer),
        "notes": list(answer.notes),
    }
    if answer.measured is not None:
        document["measured"] = training_runs_document(answer.measured)
    if answer.verifying is not None:
        document["verifying"] = verifying_document(answer.verifying)
    return json.dumps(document, indent=2)


def _verifying(verifying: Verifying, answer: Recommendation, found: Outlook) -> str:
    def days(share: float) -> str:
        band = found.band
        low, high = found.days / band.fastest**share, found.days / band.slowest**share
        return f"{number_text(low, 3)} to {number_text(high, 3)} days"

    return verifying_text(verifying, answer.model.architecture.layers, days)


def _days(answer: Recommendation) -> str:
    """Days as the formula rounds them, unless that leaves nothing."""
    return f"{answer.days:g}" if answer.days else f"{answer.exact_days:.2g}"


def _generation(answer: Recommendation) -> str:
    return "nemo1" if answer.family.has_nemo1_layout else "nemo2"


def _formula(answer: Recommendation) -> Iterator[str]:
    budget = answer.budget
    predicted = ", predicted" if answer.is_rate_predicted else ""
    fewest = ""
    if answer.needed:
        fewest = (
            f" (it would say {plural(answer.needed.by_formula, 'GPU')} for {answer.max_days:g} "
            "days)"
        )
    yield (
        f"NVIDIA's formula (NeMo {_generation(answer)[-1]}.0), for comparison: "
        f"{_parameters(answer.size_b)} train in {_days(answer)} days on "
        f"{plural(budget.gpus, 'GPU')} at "
        f"{number_text(budget.tflops_per_gpu)} TFLOP/s each{predicted}{fewest}"
    )
    if answer.nearest:
        yield f"nearest predefined search: search_config={answer.nearest}"


def _model(answer: Recommendation) -> str:
    model = answer.model
    shape = model.shape
    both = " in each stack" if answer.family.is_encoder_decoder else ""
    counts = f"{count_text(model.exact_count)} parameters"
    if model.nemo_count_b is not None:
        counts += f" ({model.nemo_count_b:.4g} B by NVIDIA's formula)"
    return (
        f"{shape.layers} layers{both}, hidden {shape.hidden}, heads {shape.heads}, ffn "
        f"{shape.ffn}, learning rate {shape.learning_rate:g}: {counts}\n"
        f"global batch {answer.global_batch} of {model.asked.sequence} tokens, vocabulary "
        f"{model.asked.vocabulary}"
    )


def _planner(answer: Recommendation) -> Iterator[str]:
    """The answer first: GPUs, a size or days; then how."""
    part, needed = answer.planner, answer.needed
    if needed is not None:
        yield _needed_text(answer, needed)
    if part.size_b is not None:
        yield (
            f"{answer.family.name}, up to {_parameters(part.size_b)}: {answer.max_days:g} days "
            f"on {answer.cluster.text} for {_tokens(answer)}, by our planner"
        )
    if part.outlook is None:
        yield f"planner: no answer. {part.why_not[:1].upper()}{part.why_not[1:]}"
    else:
        yield from _outlook(answer, part.outlook)


def _needed_text(answer: Recommendation, needed: GpusForDays) -> str:
    what = f"{answer.family.name}, {_parameters(answer.size_b)} in {answer.max_days:g} days"
    if needed.cluster is None:
        return f"{what}: no number of these GPUs is fast enough, by our planner"
    cluster = needed.cluster
    nodes = f" ({cluster.nodes} nodes of {cluster.gpus_per_node})" if cluster.nodes > 1 else ""
    days = "" if needed.outlook is None else f", {number_text(needed.outlook.days, 3)} days"
    return f"{what}: {plural(cluster.gpus, 'GPU')}{nodes}{days}, by our planner"


def _outlook(answer: Recommendation, found: Outlook) -> Iterator[str]:
    """Days and money of the model, and how they come about."""
    done, band = found.achieved, found.band
    ends = f"{number_text(found.days_low, 3)} to {number_text(found.days_high, 3)}"
    what = f"{answer.family.name}, {_parameters(answer.model.asked.size_b)}"
    needed = answer.needed and answer.needed.cluster
    if needed and needed.gpus != answer.cluster.gpus:
        what = f"on the {plural(answer.cluster.gpus, 'GPU')} that were given"
    yield (
        f"{what}: {number_text(found.days, 3)} days "
        f"({ends}), {_money(found)} on {answer.cluster.text} for {_tokens(answer)}"
    )
    yield (
        f"a step of {step_time_text(done.step_s)}, {number_text(done.tflops_per_gpu)} TFLOP/s of "
        f"each GPU as the formula counts ({number_text(done.model_tflops_per_gpu)} of the model)"
    )
    yield f"by {_layout(done)}, {memory_size(done.peak_bytes)} of each GPU"
    before = answer.model.batch.global_batch
    if done.is_batch_changed and done.is_batch_given:
        yield f"with a global batch of {done.layout.global_batch}, not the {before} that was given"
    elif done.is_batch_changed:
        yield (
            f"with a global batch of {done.layout.global_batch}, which divides over more of the "
            f"GPUs than {before} (--global-batch sets it)"
        )
    yield f"error band: {band.slowest:.2f} to {band.fastest:.2f} of this speed, {band.source}"


def _parameters(size_b: float) -> str:
    return f"{number_text(size_b, 4)} B parameters"


def _tokens(answer: Recommendation) -> str:
    return f"{count_text(answer.budget.tokens_b * 1e9)} tokens"


def _layout(done: Achieved) -> str:
    layers = _recompute_layers(done)
    return name_of(done.layout) + (f" of {layers} layers of a stage" if layers else "")


def _recompute_layers(done: Achieved) -> int | None:
    """Layers of a stage recomputed in full; None for all or none, as in the layout."""
    return None if done.recompute_layers == ALL_LAYERS else done.recompute_layers


def _money(found: Outlook) -> str:
    if found.usd is None:
        return f"no cost: {found.price}"
    return f"{found.usd:,.0f} USD ({found.price})"


def _assumptions(found: Outlook) -> str:
    band = found.band
    speed = Sensitivity(
        name=f"speed (x{band.fastest:.2f}, x{band.slowest:.2f})",
        value=1.0,
        days_at_half=found.days_low,
        days_at_double=found.days_high,
        why=band.source,
        flag="-",
    )
    header = f"assumed ({percent(found.goodput_share)} goodput)"
    columns = (
        each("name", "", header, _assumption_name, is_left=True),
        each("value", "", "value", number_text),
        each("days_at_half", "", "days at half", number_text),
        each("days_at_double", "", "days at twice", number_text),
        each("flag", "", "change it with", is_left=True),
    )
    return rows_text(columns, [*found.sensitivities, speed])


def _assumption_name(name: str) -> str:
    return re.sub(r" s$", " (s)", name.replace("_", " "))


def _model_document(answer: Recommendation) -> dict[str, Any]:
    model = answer.model
    return {
        **asdict(model.shape),
        "vocabulary": model.asked.vocabulary,
        "sequence": model.asked.sequence,
        "global_batch": answer.global_batch,
        "parameters": model.exact_count,
        "active_parameters": model.active_count,
        "parameters_by_formula_b": model.nemo_count_b,
    }


def _needed_document(answer: Recommendation) -> dict[str, Any] | None:
    needed = answer.needed
    if needed is None:
        return None
    cluster, found = needed.cluster, needed.outlook
    return {
        "gpus": cluster and cluster.gpus,
        "nodes": cluster and cluster.nodes,
        "gpus_per_node": cluster and cluster.gpus_per_node,
        "training_days": found and found.days,
        "cost_usd": found and found.usd,
        "gpus_by_formula": needed.by_formula,
    }


def _planner_document(answer: Recommendation) -> dict[str, Any]:
    part, found = answer.planner, answer.planner.outlook
    start = {"cluster": answer.cluster.text, "why_no_answer": part.why_not or None}
    if found is None:
        return start | {"model_size_b": part.size_b}
    done = found.achieved
    return start | {
        "training_days": found.days,
        "days_low": found.days_low,
        "days_high": found.days_high,
        "error_band": encode(found.band),
        "model_size_b": part.size_b,
        "step_s": done.step_s,
        "tokens_per_s": done.tokens_per_s,
        "tflops_per_gpu": done.tflops_per_gpu,
        "model_tflops_per_gpu": done.model_tflops_per_gpu,
        "peak_memory_gib": gib(done.peak_bytes),
        "layout": encode(done.layout),
        "recompute_layers": _recompute_layers(done),
        "global_batch": done.layout.global_batch,
        "cost_usd": found.usd,
        "price": found.price,
        "goodput": found.goodput_share,
        "assumptions": [encode(one) for one in found.sensitivities],
    }
