"""What is trained and by which kernels, as the time model sees it. Not: how it is laid out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import Architecture, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step's model and software.

    Attributes:
        seq: tokens of one sample; of an encoder-decoder those that the encoder reads.
        written: tokens that its decoder writes; None: as many.
        across: tokens of an encoder that each layer attends to beside its own.
        flash: attention in one kernel that never writes the scores.
        compiled: a compiler fuses the small operations.
        engine: kernels of a vendor's training library (Transformer Engine).
        flat_gathers: weights of a layer are gathered as one buffer, not matrix by matrix.
        selective_products: share of the matrix products that selective recomputation repeats;
            0 where it repeats small operations only.
        async_tensor: tensor-parallel communication is cut up to run beside its products.
        overlapped_reduce: gradients are reduced while the backward pass still runs.
        gradient_bytes_each: size of a gradient on its way between replicas.
        trained: share of the weights that have gradients (below 1 for LoRA).
    """

    architecture: Architecture
    seq: int
    precision: Precision = Precision.BF16
    flash: bool = True
    compiled: bool = False
    engine: bool = False
    flat_gathers: bool = True
    selective_products: float = 0.0
    async_tensor: bool = False
    overlapped_reduce: bool = False
    gradient_bytes_each: int = 2
    trained: float = 1.0
    written: int | None = None
    across: int = 0

    @property
    def said(self) -> int:
        """Tokens of a sample that logits are made of."""
        return self.written or self.seq if self.architecture.encoder_layers else self.seq

    @property
    def weight_bytes_each(self) -> int:
        """Size of a weight in forward and backward."""
        return self.precision.value_bytes


def stacks(workload: Workload) -> tuple[tuple[float, Workload], ...]:
    """Share of the layers with what they see: an encoder and a decoder of different lengths.

    All layers are alike where the lengths are; cross attention is then not counted.
    """
    model, written = workload.architecture, workload.written
    if not model.encoder_layers or written is None or written == workload.seq:
        return ((1.0, workload),)
    share = model.encoder_layers / (model.encoder_layers + model.layers)
    encoder = replace(workload, architecture=replace(model, causal=False), written=None)
    decoder = replace(workload, seq=written, across=workload.seq, written=None)
    return ((share, encoder), (1.0 - share, decoder))
