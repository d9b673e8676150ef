"""Help with an unknown name: the nearest one, or all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})
_LIKENESS = 0.6
"""Part of the letters of two names that must agree in order: Gaudi3 and A30 have 0.44, H101 and
H100 0.75, nf5 and nf4 0.67."""


def nearest(name: str, known: Iterable[str], also: Mapping[str, str] = _NONE) -> str | None:
    """The known name that a misspelled one means; None if no name is near.

    ``also``: other spellings of known names, with the name that each means.
    """
    by_lower_case = {
        **{other.lower(): known for other, known in also.items()},
        **{known.lower(): known for known in sorted(known)},
    }
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=_LIKENESS)
    return by_lower_case[close[0]] if close else None


def hint(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or ``known: x, y`` if no name is near."""
    names = sorted(known)
    near = nearest(name, names)
    return f"did you mean '{near}'?" if near else f"known: {', '.join(names)}"
