"""What becomes of the probe's hooks in copies of a hooked model. Not: the hooks themselves.

A script may copy its model (an average of the weights, say) or save it whole.
"""

from __future__ import annotations

from typing import Any


class SharedByCopies:
    """Copies of a model go on with the same listener; a saved one is loaded with none."""

    def __deepcopy__(self, memo: object) -> SharedByCopies:
        """Itself: there is one listener in a process."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Nothing of it is saved."""
        return (Deaf, ())


class Deaf:
    """Has every method that a hook may be, and does nothing."""

    def __getattr__(self, name: str) -> Any:
        """A hook that hears nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: object, **__: object) -> None:
    """A hook that hears nothing."""
