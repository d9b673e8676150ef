"""``--schema config|cluster``: the JSON Schema of a file, for editors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.core import ConfigError, nearest_known
from autoconf_launch.tuning_spaces import SCHEMAS, shipped_schema


def schema(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: no schema has this name.
    """
    name = " ".join(arguments)
    if name not in SCHEMAS:
        raise ConfigError(
            f"--schema takes the kind of a file, but is {name!r}; {nearest_known(name, SCHEMAS)}"
        )
    yield shipped_schema(name).rstrip("\n")
