"""Weights and operations of ``StateMixer``, by its form.

Weights are counted as in the classes of transformers (``Qwen3NextGatedDeltaNet``,
``KimiLinearDeltaAttention``, ``NemotronHMamba2Mixer``, ``JambaMambaMixer``). All else is for one
token of a forward pass, and of the whole layer.
"""

from __future__ import annotations

from autoconf_launch.core import StateForm, StateMixer

_MOVED_VALUES = 4.0
"""Times that a kernel and its convolution read or write each projected value; assumed."""
_VALUE_BYTES, _STATE_BYTES = 2.0, 4.0
_STATE_MOVES = 4.0
"""Mamba 2 writes the state at each chunk's end, adds up the chunks (a read and a write), and reads
it again (github.com/state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py)."""
_SCAN_FLOPS = 9.0
"""Operations of Mamba 1 for each value of its state (the same repository, issue 110)."""


def state_weights(hidden: int, state: StateMixer) -> int:
    """All weights of a layer's mixer, its own norm and convolution included."""
    keys, values, heads = state.keys, state.values, state.value_heads
    if state.form is StateForm.MAMBA1:
        steps = values * (state.rank + 2 * keys) + state.rank * values
        return 3 * hidden * values + steps + values * (state.convolution + keys + 3)
    mixed = 2 * keys + values
    ends = hidden * (mixed + values)
    if state.form is StateForm.MAMBA2:
        inside = (state.convolution + 1) * mixed + 3 * heads
        return ends + hidden * (values + heads) + inside + values
    if state.form is StateForm.KIMI_DELTA:
        decay = hidden * state.key_head + state.key_head * keys
        gate = hidden * state.value_head + state.value_head * values
        inside = state.convolution * mixed + keys + heads
        return ends + decay + gate + hidden * heads + inside + state.value_head
    inside = state.convolution * mixed + 2 * heads
    return ends + hidden * (values + 2 * heads) + inside + state.value_head


def state_products(hidden: int, state: StateMixer) -> tuple[tuple[float, float], ...]:
    """Columns and depth of each product with tokens; ranks split the widths but ``hidden``."""
    into = {
        StateForm.DELTA: 2 * state.keys + 2 * (state.values + state.value_heads),
        StateForm.KIMI_DELTA: 2 * state.keys + state.values + state.value_heads,
        StateForm.MAMBA2: 2 * state.keys + 2 * state.values + state.value_heads,
        StateForm.MAMBA1: 2 * state.values,
    }[state.form]
    between: tuple[tuple[float, float], ...] = ()
    if state.form is StateForm.KIMI_DELTA:  # a low-rank decay and gate
        low = state.key_head + state.value_head
        between = ((low, hidden), (state.keys, state.key_head), (state.values, state.value_head))
    if state.form is StateForm.MAMBA1:
        between = ((state.rank + 2 * state.keys, state.values), (state.values, state.rank))
    return ((into, hidden), *between, (hidden, state.values))


def state_flops(state: StateMixer) -> float:
    """Operations of one value head, besides the projections.

    In chunks: scores inside of each as attention has them, then the state between. Source: Yang et
    al. 2024 (arXiv:2406.06484), section 3.2; Dao and Gu 2024 (arXiv:2405.21060), section 6.
    """
    size = state.key_head * state.value_head
    if state.form is StateForm.MAMBA1:
        return _SCAN_FLOPS * size
    if state.form is StateForm.MAMBA2:  # heads of a group have their scores in common
        scores = state.keys / state.value_heads
        return 2.0 * state.chunk * (scores + state.value_head) + 4.0 * size
    inside = 2.0 * state.chunk * (2.0 * state.key_head + state.value_head)
    return inside + 6.0 * size


def runs_on_vectors(state: StateMixer) -> bool:
    """True if the recurrence has no matrix products."""
    return state.form is StateForm.MAMBA1


def backward_passes(state: StateMixer) -> float:
    """Work of a recurrence's backward pass over its forward pass.

    Mamba 2 makes convolution and states again, then two products for each (``ssd_combined.py``).
    """
    return 3.0 if state.form is StateForm.MAMBA2 else 2.0


def state_traffic_bytes(state: StateMixer) -> float:
    """Bytes that the recurrence and its convolution move, in 16 bits."""
    projected = _MOVED_VALUES * (_VALUE_BYTES * (2 * state.keys + 2 * state.values))
    if state.form is not StateForm.MAMBA2:
        return projected
    return projected + _STATE_MOVES * _STATE_BYTES * state.values * state.key_head / state.chunk


def kept_values(state: StateMixer) -> int:
    """Values kept for the backward pass, besides the layer's input.

    A delta network keeps its inputs before and after their convolution, gate and output. Mamba 2
    makes the convolution again (``ssd_combined.py``): it keeps all projected values, the
    recurrence's result, and the input of the last product. Mamba 1 keeps both halves, the
    convolved half, its steps, the result and the gated result.
    """
    if state.form is StateForm.MAMBA2:
        return 2 * state.keys + 4 * state.values + state.value_heads
    if state.form is StateForm.MAMBA1:
        return 6 * state.values + 2 * state.keys
    decay = state.keys if state.form is StateForm.KIMI_DELTA else 0
    return 2 * (2 * state.keys + state.values) + 2 * state.values + decay
