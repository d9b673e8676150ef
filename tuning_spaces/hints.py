"""Help with an unknown name: the nearest one, or all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})


def hint(name: str, known: Iterable[str], also: Mapping[str, str] = _NONE) -> str:
    """``did you mean 'x'?``, or ``known: x, y`` if no name is near.

    ``also``: other spellings of known names, with the name that each means.
    """
    names = sorted(known)
    by_lower_case = {
        **{other.lower(): known for other, known in also.items()},
        **{known.lower(): known for known in names},
    }
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.4)
    return f"did you mean '{by_lower_case[close[0]]}'?" if close else f"known: {', '.join(names)}"
