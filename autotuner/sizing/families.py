"""Model families and names, and which of NVIDIA's rules hold for each.

Names are such as ``Llama3Config70B``, ``Qwen2Config1P5B``, ``MixtralConfig8x7B``, ``gpt3_5b``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from autoconf_launch.core import ConfigError, nearest_known

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


class Rules(str, Enum):
    """Tables of one kind, by the name that they have in the data."""

    GPT = "gpt_like"
    T5 = "t5"
    MT5 = "mt5"
    BERT = "bert"


NEMO1_FAMILIES = ("gpt3", "t5", "mt5", "bert")
"""Families of which NeMo 1.0 recommends a size; all others are NeMo 2.0's formula."""
NEMO2_FAMILIES = ("llama", "mixtral", "mistral", "gemma", "nemotron", "qwen", "starcoder")
NEMO1_FURTHER = ("baichuan2", "chatglm", "qwen2")
"""Families with predefined searches of NeMo 1.0 besides those above."""
KNOWN_FAMILIES = NEMO1_FAMILIES + NEMO2_FAMILIES + NEMO1_FURTHER
_OWN_RULES = {"t5": Rules.T5, "mt5": Rules.MT5, "bert": Rules.BERT}
_PREDEFINED = {"qwen": "qwen2"}
_NEIGHBOURS = frozenset({"bart"})
"""Families of others that are one letter from a known one."""
_VERSION = re.compile(r"[-_.]?[0-9][0-9.]*$")


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its name, in lower case."""

    name: str

    @property
    def rules(self) -> Rules | None:
        """Its tables; None if NVIDIA has none."""
        return _OWN_RULES.get(self.name, Rules.GPT) if self.is_known else None

    @property
    def is_known(self) -> bool:
        """True if any generation of the tool knows it."""
        return self.name in KNOWN_FAMILIES

    @property
    def has_nemo1_layout(self) -> bool:
        """True if its base configuration is NeMo 1.0's; the others are recipes of 2.0."""
        return self.name in NEMO1_FAMILIES

    @property
    def is_encoder_decoder(self) -> bool:
        """True if the model has two stacks, each with the stated number of layers."""
        return self.rules in (Rules.T5, Rules.MT5)

    @property
    def predefined(self) -> str:
        """The family's folder of predefined searches."""
        return _PREDEFINED.get(self.name, self.name)

    @property
    def unknown_note(self) -> str:
        """Note on a family that no rule knows; "" for a known family."""
        if self.is_known:
            return ""
        return (
            f"No rule knows the family {self.name!r} "
            f"({nearest_known(self.name, KNOWN_FAMILIES)}): its size is NeMo 2.0's formula, "
            "which takes any name, and its shape our planner's."
        )


def family_named(name: str) -> Family:
    """The family of any name, except for a mistyped known name (``gtp3``, ``lama3``).

    Mistyped: one letter missing, added, replaced, or swapped with its neighbour. Another version
    (``llama4``, ``gpt2``) and a name that contains a known name (``roberta``) are other families:
    NeMo 2.0's formula takes any name.

    Raises:
        ConfigError: the name is mistyped; the message has the correct name.
    """
    lower = name.lower()
    if lower in _NEIGHBOURS or any(known in lower for known in KNOWN_FAMILIES):
        return Family(lower)
    for known in KNOWN_FAMILIES:
        if _is_one_slip(lower, known) or _is_one_slip(_VERSION.sub("", lower), known):
            raise ConfigError(f"The family {name!r} is unknown; did you mean {known!r}?")
    return Family(lower)


def _is_one_slip(typed: str, known: str) -> bool:
    """True if both are equal but for one letter, or for two neighbours in the other order."""
    pairs = enumerate(zip(typed, known, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), min(len(typed), len(known)))
    here, there = typed[start:], known[start:]
    is_added = here[:1].isalpha() and here[1:] == there
    is_missing = there[:1].isalpha() and here == there[1:]
    is_other = here[:1].isalpha() and there[:1].isalpha() and here[1:] == there[1:]
    is_swapped = here[:2] == there[1::-1] and here[2:] == there[2:]
    return is_added or is_missing or is_other or is_swapped


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """Facts in a model's name; None if absent.

    Attributes:
        size_b: billions of parameters; for a mixture, of one expert's model.
        experts: 0 for a model without.
    """

    family: str | None
    size_b: float | None
    experts: int = 0


def parse_model_name(name: str) -> NamedModel:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Predefined:
    """A search by the name that ``search_config=`` takes, such as ``gpt3/5b``."""

    name: str
    family: str
    size_b: float
    vocabulary: int
    sequence: int


def nearest_predefined(
    known: Sequence[Predefined],
    family: str,
    size_b: float,
    vocabulary: int = 1,
    sequence: int = 1,
) -> str | None:
    """The name of the family's nearest size by its ratio; None if the family has none.

    Of equal sizes the nearest vocabulary (the smallest by default), then the nearest
    sequence length, then the first name.
    """

    def distance(one: Predefined) -> tuple[float, float, float, str]:
        return (
            abs(math.log(one.size_b / size_b)),
            abs(math.log(one.vocabulary / vocabulary)),
            abs(math.log(one.sequence / sequence)),
            one.name,
        )

    own = [one for one in known if one.family == family]
    return min(own, key=distance).name if own and size_b > 0 else None
