"""GPUs, their links, and seconds of collectives over these.

One set of constants for all tables and GPUs. ``benchmarks/planner_accuracy.py`` lists the
published rows behind them and the errors on models that were excluded from the fit.

Inside a node: lines through measured all-reduces, the quicker of the protocols for each size.
Across nodes: NCCL's rings, whose members in a node share its cards with the other groups there
(Thakur et al. 2005; NCCL tests, "Performance": bus bandwidth). A ring with one rank in each node
stays on one rail, the cards of equal number that share a leaf switch; with several ranks in each
of them it enters by one card and leaves by another, across the spine, which rings of other groups
share (NVIDIA, NCCL's documentation of NCCL_CROSS_NIC).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import ClusterSpec, Precision

from ..space import Floats, Ints

_PACKED_ROWS = 8.0
"""Rows from which on MKL copies all weights, and of fewer a part, by
``benchmarks/cpu_constants.py`` on a Xeon (Sapphire Rapids); on an AMD EPYC they were 4."""
SENT = 0.6
"""Part of a link's rate that one send reaches; a round number."""
_ONE_CARD_BYTES_PER_S = 12.5e9
"""Up to 100 Gb/s a node has one card, and there are no rails to cross."""


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
    """Link of the GPUs of one node: one direction of one GPU, by its datasheet.

    A buffer takes the fastest protocol in ``rates`` for its number of ranks.

    ``short_rates`` are NCCL's protocols for some kilobytes, ``peer_rates`` single kernels that
    read the memory of their peers; only inference uses these.
    """

    bytes_per_s: float
    rates: tuple[tuple[CollectiveRate, ...], ...]
    short_rates: tuple[tuple[CollectiveRate, ...], ...] = ()
    peer_rates: tuple[tuple[CollectiveRate, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU. ``half_flops_per_s`` is dense and 16-bit, by the datasheet.

    Attributes:
        fp32_flops_per_s: of products in fp32 outside the tensor cores, by the datasheet.
        reached: the largest matrix product that was measured over ``half_flops_per_s``.
        fp32_reached: part of ``fp32_flops_per_s`` that long products hold.
        tf32_flops_per_s: dense, by the datasheet; None if the GPU has no such unit.
        fp8_flops_per_s, fp4_flops_per_s: dense, by the datasheet; None if the GPU has no such
            unit.
        multiprocessors: units that take one tile of a product each.
        flash: part of ``reached`` that portable flash-attention kernels attain; 0 if they do
            not run (before compute capability 8.0).
        streamed: part of the memory's rate at which products of few rows read their weights; None:
            as in simple kernels.
        power_limited: part of each datasheet rate that long products hold under the power limit;
            None if ``reached`` and the clock give it.
        attention, attention_backward: parts of ``half_flops_per_s`` that a vendor's attention
            holds, of the operations that a causal mask leaves; None: a fixed gain over ``flash``.
        assumed: keys of a cluster file for measured rates, for which it has no value and our
            tables have none either.
    """

    name: str
    half_flops_per_s: float
    fp32_flops_per_s: float
    reached: float
    multiprocessors: int
    memory_bytes: float
    memory_bytes_per_s: float
    fp32_reached: float = 1.0
    tf32_flops_per_s: float | None = None
    fp8_flops_per_s: float | None = None
    fp4_flops_per_s: float | None = None
    bf16: bool = True
    flash: float = 0.6
    streamed: float | None = None
    power_limited: float | None = None
    attention: float | None = None
    attention_backward: float | None = None
    assumed: tuple[str, ...] = ()

    @property
    def is_cpu(self) -> bool:
        """True if it is a process of a CPU, whose rates are measured ones."""
        return self.name.startswith("cpu")


def computes_in(accelerator: Accelerator, precision: Precision) -> bool:
    """True if a GPU has units for a format; scales of small blocks came with those for 4 bits.

    TF32 is fp32 on a GPU without it, as torch has it.
    """
    if precision in (Precision.NVFP4, Precision.MXFP8):
        return accelerator.fp4_flops_per_s is not None
    if precision.is_fp8:
        return accelerator.fp8_flops_per_s is not None
    return accelerator.bf16 or precision is not Precision.BF16


def is_plain_fp32(accelerator: Accelerator, precision: Precision) -> bool:
    """True if products run in fp32 outside the tensor cores, as PyTorch's do by default."""
    has_tf32 = accelerator.tf32_flops_per_s is not None
    return precision is Precision.FP32 or (precision is Precision.TF32 and not has_tf32)


def peak_flops_per_s(accelerator: Accelerator, precision: Precision) -> float:
    """Datasheet rate; fewer bits fall back to the next format that the GPU has a unit for."""
    if precision.value_bytes == 4:
        plain = is_plain_fp32(accelerator, precision)
        fp32 = accelerator.fp32_flops_per_s
        return fp32 if plain else accelerator.tf32_flops_per_s or fp32
    half = accelerator.half_flops_per_s
    if precision.is_quantized:
        eight = accelerator.fp8_flops_per_s or half
        return (accelerator.fp4_flops_per_s or eight) if not precision.is_fp8 else eight
    return half


def reached_flops_per_s(accelerator: Accelerator, precision: Precision, physics: Physics) -> float:
    """Rate that long products hold; those outside the tensor cores need no slower clock."""
    peak = peak_flops_per_s(accelerator, precision)
    if is_plain_fp32(accelerator, precision):
        return peak * accelerator.fp32_reached
    return peak * accelerator.reached * physics.sustained


def core_product_s(
    cores: Accelerator,
    precision: Precision,
    shape: tuple[Floats | Ints, Floats | Ints, Floats | Ints],
) -> Floats:
    """A product (m x k) by (k x n) on cores of a CPU, which load weights and compute in turn.

    From as many rows on as a register block has, weights are first copied in the order in which
    they are used, which takes as long again (Goto and van de Geijn 2008, "Anatomy of
    High-Performance Matrix Multiplication", section 4).
    """
    m, n, k = (np.asarray(size, np.float64) for size in shape)
    copied = np.minimum(1.0, (m - 1.0) / (_PACKED_ROWS - 1.0))
    loaded_s = precision.value_bytes * k * n * (1.0 + copied) / cores.memory_bytes_per_s
    return np.asarray(loaded_s + 2.0 * m * n * k / peak_flops_per_s(cores, precision))


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Efficiencies are fractions of the hardware's peak; times are in seconds."""

    sustained: float = 0.867
    """Clock under a long load over the clock of one benchmarked product."""
    memory_efficiency: float = 0.863
    kernel_s: float = 3.07e-06
    """Start and end of one kernel on the device."""
    split_efficiency: float = 0.77
    """Products cut along k so that few tiles fill the GPU (split-k, stream-k)."""
    depth_half: float = 302.0
    """Length k at which a tile spends half its time on filling and draining, on an A100."""
    flash_backward: float = 0.612
    """Rate of flash attention's backward pass over its forward pass."""
    engine_attention: float = 1.5
    """Attention of a vendor's library, which has each GPU's own instructions, over the portable
    flash kernels."""
    score_passes: float = 5.32
    """Times that unfused attention moves each score; see ``layer``."""
    small_passes: float = 0.546
    """Bytes of small operations over those counted in ``layer``."""
    unfused_attention: float = 0.752
    misaligned_attention: float = 0.031
    """Batched products of heads whose width is not a multiple of 4."""
    fp8_passes: float = 3.98
    """Bytes that casting and scaling move for each number of an operand."""
    fp8_engine: float = 0.197
    """The same in a vendor's library, which casts inside of other kernels, over that without."""
    fp8_rowwise: float = 4.37
    """The same with a scale for each row."""
    compiled_traffic: float = 0.597

    layer_forward_s: float = 0.000879
    layer_backward_s: float = 0.00129
    layer_compiled: float = 0.35
    """Host work of a layer under a compiler over that without."""
    unfused_softmax_s: float = 0.000411
    collective_launch_s: float = 2.74e-05
    straggler_s: float = 9.85e-06
    """Time that each additional rank adds to a collective in which all wait for the last rank."""
    host_sharpness: float = 4.75
    """Exponent of joining host and device time; infinite for the larger of both."""
    micro_batch_s: float = 0.00227
    step_s: float = 0.00353
    network_fraction: float = 0.858
    crossed_rails: float = 0.525
    """Rate of rings of several groups that each have several ranks in a node, over the rate of
    rings that keep to one rail."""
    network_latency_s: float = 1.53e-05
    hop_s: float = 1.03e-05
    """Latency of a step of a ring across nodes; gathers have no trees to cut their number."""
    straggling: float = 0.002
    """Part of a step that each doubling of the nodes adds: all wait for the slowest one, and the
    largest of n delays grows with log n (Gumbel 1958). From NVIDIA's and InternEvo's tables."""
    shard_overlap: float = 0.858
    """Part of a layer's compute behind which gathers of sharded weights hide."""
    tensor_overlap: float = 0.103
    async_tensor_overlap: float = 0.623
    point_to_point_overlap: float = 0.485
    """Part of a send between pipeline stages behind which they compute, fitted to published runs
    as the others are. Schedules differ: Megatron-LM hides sends only between interleaved stages
    (megatron/training/arguments.py: ``overlap_p2p_comm`` is False without them)."""
    routing_units: float = 20.0
    """Multiprocessors that send tokens across domains (DeepSeek-AI 2024, arXiv:2412.19437, section
    3.2.2), of which kernels alongside them are short."""
    routing_s: float = 0.0045
    """Time that a layer with experts waits for its host in each forward pass, which reads the
    number of tokens of each expert before it launches their products."""
    contention: float = 0.413
    """Slowdown of compute by collectives that run alongside it."""
    optimizer_bytes: float = 26.6
    host_bytes_per_s: float = 150000000000.0
    """Memory of a node's host, shared by its ranks."""
    host_link_bytes_per_s: float = 12000000000.0


DEFAULT_PHYSICS = Physics()
CPU_PHYSICS = replace(
    DEFAULT_PHYSICS,
    sustained=1.0,
    memory_efficiency=1.0,
    kernel_s=0.0,
    small_passes=5.0,
)
"""Physics of CPU processes: their rates were measured, and the start of a kernel is part of a
layer's host time. Each small operation reads and writes its own fp32 values: 4.7 (Llama) to 6.6
(GPT-2) times the bytes counted, by transformers' code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A network between nodes: InfiniBand that blocks nothing, or compared with that.

    ``rate`` and ``hop`` are the cards' rate and the latency over InfiniBand's, ``spine`` the rate
    from a leaf switch to other leaves over the rate to its nodes.
    """

    rate: float = 1.0
    spine: float = 1.0
    hop: float = 1.0
    has_rails: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Equal nodes of equal GPUs.

    ``node_network_bytes_per_s`` is one direction of all network cards of a node together;
    ``host_memory_bytes`` a node's memory besides its GPUs', None if it is not known;
    ``linked_gpus`` is the number of GPUs that one switch links if it reaches beyond a node (72 in
    an NVL72 rack), else None.
    """

    accelerator: Accelerator
    gpus_per_node: int
    link: Link
    node_network_bytes_per_s: float
    fabric: Fabric = Fabric()
    host_memory_bytes: float | None = None
    linked_gpus: int | None = None
    physics: Physics = DEFAULT_PHYSICS

    @property
    def domain(self) -> int:
        """GPUs that reach each other by ``link``."""
        return max(self.gpus_per_node, self.linked_gpus or 0)

    @property
    def domain_network_bytes_per_s(self) -> float:
        """Bandwidth of all network cards of a domain together, in one direction."""
        return self.node_network_bytes_per_s * self.domain / self.gpus_per_node


ALL_REDUCE, GATHER = 2.0, 1.0
"""Passes of a ring over the buffer: reduce-scatter and all-gather, or either."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """``ranks`` with numbers ``stride`` apart, for each row.

    Attributes:
        world: all ranks, in nodes that such groups fill in order; None: nodes have whole groups.
        rings: groups that share the cards of a node; None: all neighbours.
    """

    ranks: Ints
    stride: Ints
    world: Ints | None = None
    rings: Ints | None = None


def ring_share(ranks: Ints | Floats) -> Floats:
    """Part of a buffer that each rank of a ring sends in one pass over it (Thakur et al. 2005)."""
    return np.asarray((ranks - 1) / np.maximum(ranks, 1), np.float64)


def ring_s(
    machine: Machine,
    group: Group,
    buffer_bytes: Floats,
    *,
    passes: float = ALL_REDUCE,
    pieces: Floats | int = 1,
) -> Floats:
    """A collective over ``buffer_bytes`` sent as ``pieces`` pieces; 0 for a single rank."""
    ranks, physics = group.ranks, machine.physics
    inside, nodes, sharing = _reach(machine, group)
    local = link_s(machine.link, np.minimum(ranks, inside), buffer_bytes, passes)
    network = domain_cards_bytes_per_s(machine) / sharing
    if has_rails(machine):
        several = (inside > 1) & (np.minimum(group.stride, machine.domain) > 1)
        network = network * np.where(several, crossed_rails(machine), 1.0)
    across = passes * ring_share(ranks) * buffer_bytes / network
    hops = np.log2(np.maximum(nodes, 2)) * physics.network_latency_s * passes
    if passes < ALL_REDUCE:
        hops = hops + pieces * ranks * physics.hop_s
    hops = hops * machine.fabric.hop
    spread = np.maximum(across, local * (inside > 1)) + hops
    seconds = np.where(nodes > 1, spread, local)
    return np.where(ranks > 1, seconds, 0.0)


def domains(machine: Machine, group: Group) -> Floats:
    """Switches that a group reaches over; from 2 on it needs the network."""
    return np.asarray(_reach(machine, group)[1], np.float64)


def _reach(machine: Machine, group: Group) -> tuple[Ints, Ints, Ints]:
    """Most of a group's ranks in one domain, domains it reaches, and rings that share their cards.

    Groups side by side are a block. Blocks that neither divide a node nor are whole nodes cross a
    border of nodes, mostly two of them in each node; racks have whole blocks.
    """
    domain, ranks, stride = machine.domain, group.ranks, np.maximum(group.stride, 1)
    inside = np.clip(domain // stride, 1, ranks)
    nodes, rings = -(-ranks // inside), stride if group.rings is None else group.rings
    if group.world is not None and machine.linked_gpus is None:
        block = ranks * stride
        common = np.gcd(block, domain)
        is_cut = (common < np.minimum(block, domain)) & (group.world > domain) & (ranks > 1)
        nodes = np.where(is_cut, -(-(domain - common + block) // domain), nodes)
        rings = rings * np.where(is_cut & (block != 2 * common), 2, 1)
    return inside, nodes, np.minimum(rings, domain)


def all_to_all_s(
    machine: Machine,
    group: Group,
    buffer_bytes: Floats,
    *,
    copies: int = 1,
    is_forwarded: bool = False,
    most_domains: Floats | float = np.inf,
) -> Floats:
    """Each rank sends ``copies`` copies of its buffer, cut up evenly over all ranks.

    Forwarded copies leave for another switch's domain once, and links share them out there
    (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.2): of ``n`` domains a token whose copies go
    anywhere reaches ``n (1 - (1 - 1 / n) ** copies)``, and never more than ``most_domains``.
    """
    ranks, (inside, nodes, _) = group.ranks, _reach(machine, group)
    beside = np.where((nodes > 1) & (inside == ranks), (ranks + 1) // 2, inside)
    near, sent = copies * (inside - 1) / np.maximum(ranks, 1), np.full(len(ranks), float(copies))
    if is_forwarded:
        near = copies * (inside - 1) / inside
        sent = np.minimum(nodes * (1.0 - (1.0 - 1.0 / nodes) ** copies), most_domains)
    away = sent * (ranks - beside) / np.maximum(ranks, 1)
    network = domain_cards_bytes_per_s(machine) * machine.fabric.spine / machine.domain
    link = machine.link.bytes_per_s * _best_fraction(machine.link)
    seconds = np.maximum(buffer_bytes * near / link, buffer_bytes * away / network)
    return np.where(ranks > 1, seconds + machine.physics.network_latency_s, 0.0)


def has_rails(machine: Machine) -> bool:
    """True if cards of equal number share a switch, so that other rings cross a spine."""
    several_cards = machine.node_network_bytes_per_s > _ONE_CARD_BYTES_PER_S
    return several_cards and machine.fabric.has_rails


def crossed_rails(machine: Machine) -> float:
    """Rate of rings that leave their leaf switch, over the rate of others."""
    return machine.physics.crossed_rails * machine.fabric.spine


def domain_cards_bytes_per_s(machine: Machine) -> float:
    """Rate of all cards of a domain together."""
    reached = machine.physics.network_fraction * machine.fabric.rate
    return machine.domain_network_bytes_per_s * reached


def link_s(link: Link, ranks: Ints, buffer_bytes: Floats, passes: float) -> Floats:
    """A ring in a node by its quickest protocol; between measured ranks it is interpolated."""
    counts = np.arange(int(ranks.max(initial=1)) + 1)
    share = passes * ring_share(counts)
    best: Floats | None = None
    for protocol in link.rates:
        known = [float(rate.ranks) for rate in protocol]
        latency = np.interp(counts, known, [rate.latency_s for rate in protocol])
        fraction = np.interp(counts, known, [rate.link_fraction for rate in protocol])
        start, each = latency * passes / 2, share / (link.bytes_per_s * fraction)
        taken = start[ranks] + each[ranks] * buffer_bytes
        best = taken if best is None else np.minimum(best, taken)
    assert best is not None
    return best


def _best_fraction(link: Link) -> float:
    return max(rate.link_fraction for protocol in link.rates for rate in protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The measured network between the ranks of one launch: of a rank, in one direction.

    ``overlaps``: collectives of FSDP run alongside kernels, as streams of a GPU do.
    """

    latency_s: float
    bytes_per_s: float
    overlaps: bool

    @staticmethod
    def of(cluster: ClusterSpec) -> Network | None:
        """The slowest link of a cluster; None if unknown or for a single rank."""
        nodes, ranks = cluster.nodes, len(cluster.devices)
        rates = [node.link_bytes_per_s for node in nodes if len(node.devices) > 1]
        if len(nodes) > 1:
            rates += [
                node.network_bytes_per_s and node.network_bytes_per_s / len(node.devices)
                for node in nodes
            ]
        known = [rate for rate in rates if rate]
        if ranks < 2 or not known or len(known) < len(rates):
            return None
        return Network(
            latency_s=max(node.link_latency_s or 0.0 for node in nodes),
            bytes_per_s=min(known),
            overlaps=not all(device.name.startswith("cpu") for device in cluster.devices),
        )

    def rings_s(
        self, ranks_C: Ints | Floats, collectives_C: Floats | float, passed_bytes: Floats | float
    ) -> Floats:
        """Seconds of ``count`` collectives that pass over ``moved_bytes`` in all."""
        sent = passed_bytes * ring_share(ranks_C)
        return np.asarray(collectives_C * self.latency_s + sent / self.bytes_per_s)

    def send_s(self, sent_bytes_C: Floats) -> Floats:
        """Seconds to send bytes to another rank."""
        return np.asarray(self.latency_s + sent_bytes_C / self.bytes_per_s, np.float64)


def exposed_s(
    exchange_s_C: Floats,
    computing_s_C: Floats,
    physics: Physics,
    contention: float | None = None,
) -> Floats:
    """Exposed seconds of an exchange that runs alongside kernels, which it slows in turn.

    Args:
        exchange_s_C: seconds of only the exchange.
        computing_s_C: seconds of only the kernels.
        physics: the part of them that hides an exchange, and their slowdown.
        contention: the slowdown if it is known better.
    """
    hidden = np.minimum(exchange_s_C, physics.shard_overlap * computing_s_C)
    slowed = physics.contention if contention is None else contention
    return np.asarray(exchange_s_C - hidden + slowed * hidden)


def side_by_side_s(host: Floats, device: Floats, sharpness: float) -> Floats:
    """Host and device together; near equality each one waits for the other at times."""
    larger, smaller = np.maximum(host, device), np.minimum(host, device)
    return np.asarray(larger * (1.0 + (smaller / larger) ** sharpness) ** (1.0 / sharpness))
