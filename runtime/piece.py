"""One part of a model as one forward pass shows it. Not: how a pass is watched."""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDING, HEAD, REST, MODEL = "embedding", "head", "rest", "model"
"""Before the first repeated block, after the last, never run, and a model without blocks."""


@dataclass(slots=True, kw_only=True)
class Piece:
    """What a part holds and takes. Weights that parts share count for the first that runs."""

    name: str
    parameters: int = 0
    frozen_parameters: int = 0
    flops: float = 0.0
    kept_bytes: int = 0
    input_bytes: int = 0
    input_shape: tuple[int, ...] = ()
