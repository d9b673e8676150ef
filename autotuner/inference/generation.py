"""Text to generate, and the points of a search as columns.

Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture, Precision

from ..space import CandidateTable, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Batches of equal prompts and answers.

    Attributes:
        model: a decoder, or an encoder with a decoder.
        input_tokens: of a prompt; an encoder reads them all.
        output_tokens: of an answer, the first one included.
        precision: of the matrix products.
        beam_width: number of answers of a sample that are written in parallel.
    """

    model: Architecture
    input_tokens: int
    output_tokens: int
    precision: Precision = Precision.BF16
    beam_width: int = 1

    @property
    def weight_bytes(self) -> float:
        """Size of a weight in a matrix of a layer."""
        return self.precision.product_bytes

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the decoder has read before it writes the first one."""
        return 1 if self.model.encoder_layers else self.input_tokens

    @property
    def mean_context(self) -> float:
        """Mean number of tokens that a token of the answer attends to."""
        return self.prompt_tokens + self.output_tokens / 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointColumns:
    """Degrees and batch of each point; ``batch_C`` samples go through the model together."""

    tensor_C: Ints
    pipeline_C: Ints
    batch_C: Ints

    def __len__(self) -> int:
        return len(self.tensor_C)

    @property
    def samples_C(self) -> Floats:
        """The batch as numbers for products."""
        return self.batch_C.astype(np.float64)

    @property
    def gpus_C(self) -> Ints:
        """Ranks of one copy of the model."""
        return self.tensor_C * self.pipeline_C

    def with_beams(self, width: int) -> PointColumns:
        """The points with a sequence in the batch for each beam."""
        return replace(self, batch_C=self.batch_C * width)

    @staticmethod
    def from_table(table: CandidateTable) -> PointColumns:
        """Columns of a table, whose micro-batch is the batch."""
        return PointColumns(
            tensor_C=table["tensor_parallel"],
            pipeline_C=table["pipeline_parallel"],
            batch_C=table["micro_batch"],
        )

    def take(self, rows: Ints) -> PointColumns:
        """Some rows by number."""
        return PointColumns(
            tensor_C=self.tensor_C[rows],
            pipeline_C=self.pipeline_C[rows],
            batch_C=self.batch_C[rows],
        )
