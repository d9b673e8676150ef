"""Whether this machine can hold a model at all, before anything is launched. Not: a prediction.

What is kept beside weights, gradients and Adam's state is not counted: a run may still not fit.
"""

from __future__ import annotations

from autoconf_launch.autotuner.cost.parameter_count import parameters
from autoconf_launch.core import NothingFeasibleError
from autoconf_launch.tuning_spaces.search_configs import predefined

from ..machine.discover import find_cluster
from ..views.cells import size_text
from .question import SearchQuestion
from .this_machine import local_request

STATE_BYTES = 16
"""State per parameter: 4 + 4 + 8 in fp32; 2 + 2 + 12 in bf16 with a master copy (ZeRO, 3.1)."""


def require_room(question: SearchQuestion) -> None:
    """See that all ranks together hold the state of the model, each its share (ZeRO 3).

    Raises:
        NothingFeasibleError: they do not; the message has a size that they hold.
    """
    for refusal in refusals(question):
        raise NothingFeasibleError(refusal)


def refusals(question: SearchQuestion) -> tuple[str, ...]:
    """Why this machine, as it is now, cannot hold a model; nothing where it can."""
    cluster = find_cluster(local_request(question.gpus))
    refusal = why_no_room(question, cluster.least_memory_bytes)
    return (refusal,) if refusal else ()


def why_no_room(question: SearchQuestion, rank_bytes: int) -> str:
    """Why a model cannot be held by ranks with so much memory each; "" where it can."""
    count, ranks = parameters(question.architecture), question.gpus
    needed, held = STATE_BYTES * count / ranks, rank_bytes * ranks // STATE_BYTES
    if needed <= rank_bytes:
        return ""
    each = f"each of {ranks} ranks" if ranks > 1 else "one rank"
    return (
        f"{question.name} needs at least {size_text(needed)} on {each} for weights, gradients and "
        f"Adam's state ({STATE_BYTES} bytes for each of {count / 1e9:.3g} B parameters), but this "
        f"machine has {size_text(rank_bytes)} free for each; {_instead(question, held)}."
    )


def _instead(question: SearchQuestion, held: int) -> str:
    sizes = {
        one.size_b: one.name
        for one in predefined()
        if one.family == question.family.predefined and one.size_b * 1e9 <= held
    }
    if sizes:
        return f"the largest predefined size that it holds is search_config={sizes[max(sizes)]}"
    return f"it holds {held / 1e9:.2g} B: give a smaller model_size_in_b"
