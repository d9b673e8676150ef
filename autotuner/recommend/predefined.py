"""The predefined search that is nearest to a size. Not: the searches' content (tuning_spaces)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Predefined:
    """A search by the name that ``search_config=`` takes, such as ``gpt3/5b``."""

    name: str
    family: str
    size_b: float


def nearest_predefined(known: Sequence[Predefined], family: str, size_b: float) -> str | None:
    """The name of the family's nearest size by its ratio; None where the family has none.

    Of equal ones the first by name.
    """
    own = sorted((one for one in known if one.family == family), key=lambda one: one.name)
    if not own or size_b <= 0:
        return None
    return min(own, key=lambda one: abs(math.log(one.size_b / size_b))).name
