"""What the time model needs of GPUs and their links. Not: memory to fit into, prices, names.

One set for all tables and GPUs. ``benchmarks/planner_accuracy.py`` says which published rows
informed them and how far off the model is on models that were left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRate:
    """A line through measured all-reduces of ``ranks`` in one node, for one protocol.

    ``latency_s`` is the time of an empty buffer, ``link_fraction`` the bus bandwidth reached on
    long ones over the link's datasheet bandwidth.
    """

    ranks: int
    latency_s: float
    link_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins the GPUs of one node: one direction of one GPU, by its datasheet.

    A buffer takes the quickest protocol of those that ``rates`` has for its number of ranks.
    """

    bytes_per_s: float
    rates: tuple[tuple[CollectiveRate, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU. ``half_flops_per_s`` is dense and 16-bit, by the datasheet.

    Attributes:
        reached: the largest matrix product that was measured over ``half_flops_per_s``.
        fp8_flops_per_s: dense, by the datasheet; None where the GPU has no such unit.
        multiprocessors: units that take one tile of a product each.
        flash: part of ``reached`` that portable flash-attention kernels attain; 0 where they do
            not run (before compute capability 8.0).
    """

    name: str
    half_flops_per_s: float
    reached: float
    multiprocessors: int
    memory_bytes: float
    memory_bytes_per_s: float
    fp8_flops_per_s: float | None = None
    bf16: bool = True
    flash: float = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Equal nodes of equal GPUs.

    ``node_network_bytes_per_s`` is one direction of all network cards of a node together;
    ``network_quality`` what collectives reach of it over what they reach on InfiniBand.
    """

    accelerator: Accelerator
    gpus_per_node: int
    link: Link
    node_network_bytes_per_s: float
    network_quality: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Efficiencies are fractions of what the hardware can do at best; times are in seconds."""

    sustained: float = 0.867
    """Clock under a long load over that of one benchmarked product."""
    memory_efficiency: float = 0.863
    kernel_s: float = 3.07e-06
    """Start and end of one kernel on the device."""
    split_efficiency: float = 0.77
    """Products cut along k so that few tiles fill the GPU (split-k, stream-k)."""
    depth_half: float = 302.0
    """Length k at which a tile spends half its time on filling and draining."""
    flash_backward: float = 0.612
    """Rate of flash attention's backward pass over its forward pass."""
    engine_attention: float = 1.25
    """Attention of a vendor's library over the portable flash kernels."""
    score_passes: float = 5.32
    """Times that unfused attention moves each score; see ``layer``."""
    small_passes: float = 0.546
    """Bytes of small operations over those counted in ``layer``."""
    unfused_attention: float = 0.752
    misaligned_attention: float = 0.031
    """Batched products of heads whose width is not a multiple of 8."""
    fp8_passes: float = 3.98
    """Bytes that casting and scaling move for each number of an operand."""
    fp8_engine: float = 0.197
    """The same in a vendor's library, which casts inside of other kernels, over that without."""
    fp8_rowwise: float = 4.37
    """The same with a scale for each row."""
    fp8_efficiency: float = 0.963
    compiled_traffic: float = 0.597

    layer_forward_s: float = 0.000879
    layer_backward_s: float = 0.00129
    layer_compiled: float = 0.35
    """Host work of a layer under a compiler over that without."""
    unfused_softmax_s: float = 0.000411
    collective_launch_s: float = 2.74e-05
    straggler_s: float = 9.85e-06
    """What each further rank adds to a collective in which all wait for the last one."""
    host_sharpness: float = 4.75
    """How little host and device disturb each other; infinite for the larger of both."""
    micro_batch_s: float = 0.00227
    step_s: float = 0.00353
    network_fraction: float = 0.858
    crossed_rails: float = 0.525
    """Rate of rings of several groups that each have several ranks in a node, over that of rings
    that keep to one rail."""
    network_latency_s: float = 1.53e-05
    hop_s: float = 1.03e-05
    """One step of a ring across nodes; gathers have no trees to cut their number."""
    shard_overlap: float = 0.858
    """Part of a layer's compute behind which gathers of sharded weights hide."""
    tensor_overlap: float = 0.103
    async_tensor_overlap: float = 0.623
    point_to_point_overlap: float = 0.485
    contention: float = 0.413
    """Slowdown of compute by collectives that run beside it."""
    optimizer_bytes: float = 26.6
    host_bytes_per_s: float = 150000000000.0
    """Memory of a node's host, shared by its ranks."""
    host_link_bytes_per_s: float = 12000000000.0


DEFAULT_PHYSICS = Physics()
