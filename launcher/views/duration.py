"""Long times in the unit that suits them. Not: step times (cells)."""

from __future__ import annotations

_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def duration_text(seconds: float) -> str:
    """``2.3 days``, ``14.1 hours``, ``40 s``: three digits of its largest whole unit."""
    for size, name in _UNITS:
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {name}"
    return f"{_three_digits(seconds)} s"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def plural(count: int, noun: str, several: str = "") -> str:
    """``1 step``, ``2 steps``; ``several`` where no *s* makes it."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"
