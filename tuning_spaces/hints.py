"""Help with an unknown name: the nearest one and all. Not: which names there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'? known: x, y``, the question only where a name is near."""
    names = sorted(known)
    by_lower_case = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.4)
    question = f"did you mean '{by_lower_case[close[0]]}'? " if close else ""
    return f"{question}known: {', '.join(names)}"
