"""A text made at run time, as samples for each kind of model.

Sentences about sums, byte by byte: there is something to learn, and nothing to download.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

PAD, END, MASK = 0, 1, 2
SPECIAL = 3
LEAST_VOCABULARY = 256 + SPECIAL
"""Tokens that a model must know to read this text."""
_SUMS = 20_000
_MASKED = 0.15
_MISSING = 4
"""An encoder's input lacks at most one token in this many."""
_ENCODER_DECODERS = ("t5", "mt5")
_NOT_COUNTED = -100


class Sums(Dataset[dict[str, Tensor]]):
    """Windows of the text with what a family's model is to say of them."""

    def __init__(self, family: str, tokens: int, written: int | None = None) -> None:
        """Make the text.

        Args:
            family: of the model.
            tokens: of a window.
            written: tokens that an encoder-decoder writes of it; None: what is missing in it.
        """
        self._family, self._tokens = family, tokens
        self._written = max(1, tokens // _MISSING) if written is None else written
        numbers = torch.Generator().manual_seed(0)
        pairs = torch.randint(0, 100, (_SUMS, 2), generator=numbers).tolist()
        text = "".join(f"{a} and {b} are {a + b}. " for a, b in pairs).encode()
        self._ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long() + SPECIAL

    def __len__(self) -> int:
        beyond = self._written if self._family in _ENCODER_DECODERS else 0
        return max(1, (len(self._ids) - beyond) // self._tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        end = (index + 1) * self._tokens
        window = self._ids[index * self._tokens : end]
        if self._family in _ENCODER_DECODERS:
            return _with_a_gap(window, self._ids[end : end + self._written], self._written)
        return _masked_batch(window, index) if self._family == "bert" else _next(window)


def _next(window: Tensor) -> dict[str, Tensor]:
    """Transformers shifts the labels itself."""
    return {"input_ids": window, "labels": window}


def _masked_batch(window: Tensor, index: int) -> dict[str, Tensor]:
    chosen = torch.rand(len(window), generator=torch.Generator().manual_seed(index)) < _MASKED
    chosen[index % len(window)] = True
    return {
        "input_ids": window.where(~chosen, torch.tensor(MASK)),
        "labels": window.where(chosen, torch.tensor(_NOT_COUNTED)),
    }


def _with_a_gap(window: Tensor, following: Tensor, written: int) -> dict[str, Tensor]:
    """The middle, a quarter at most, is missing and has to be said, then what follows."""
    gap = min(written, max(1, len(window) // _MISSING))
    start = (len(window) - gap) // 2
    given = window.clone()
    given[start : start + gap] = MASK
    said = torch.cat((window[start : start + gap], following[: written - gap]))
    return {"input_ids": given, "labels": said}
