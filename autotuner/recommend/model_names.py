"""What a model's name says of it: family and size. Not: what its shape says, which counts more.

``Llama3Config70B``, ``Qwen2Config1P5B``, ``MixtralConfig8x7B``, ``gpt3_5b``, ``llama3-8b``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FAMILIES = {
    "gpt": "gpt3",
    "bert": "bert",
    "mt5": "mt5",
    "t5": "t5",
    "llama": "llama",
    "mixtral": "mixtral",
    "mistral": "mistral",
    "gemma": "gemma",
    "nemotron": "nemotron",
    "starcoder": "starcoder",
    "qwen": "qwen",
    "baichuan": "baichuan2",
    "chatglm": "chatglm",
}
"""By the part of a name that tells them; the first that is there counts."""
_SIZE = re.compile(r"(?:(\d+)x)?(\d+(?:[.p]\d+)?)([bm])(?![a-z])", re.IGNORECASE)
_UNITS_B = {"b": 1.0, "m": 1e-3}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """What a name says; None where it does not.

    Attributes:
        size_b: billions of parameters; of a mixture that of one expert's model.
        experts: 0 for a model without.
    """

    family: str | None
    size_b: float | None
    experts: int = 0


def named(name: str) -> NamedModel:
    """Read a name; a ``P`` in a size is its decimal point."""
    lower = name.lower()
    family = next((known for part, known in _FAMILIES.items() if part in lower), None)
    found = _SIZE.search(name)
    if found is None:
        return NamedModel(family=family, size_b=None)
    experts, number, unit = found.groups()
    return NamedModel(
        family=family,
        size_b=float(number.lower().replace("p", ".")) * _UNITS_B[unit.lower()],
        experts=int(experts or 0),
    )
