"""The command of one rank of a search; see :mod:`.train`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, RawConfig

from .train import train


def main() -> None:
    """Read two JSON documents and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True, metavar="FILE.json|JSON")
    own_help = "the runtime's own"
    parser.add_argument("--config", required=True, metavar="FILE.json|JSON", help=own_help)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    given = parser.parse_args()
    try:
        base = RawConfig(_document(given.base_config))
        is_inline = given.config.lstrip().startswith("{")
        config = _document(given.config) if is_inline else given.config
        train(base, config, given.steps, _write)
    except ConfigError as error:
        sys.exit(str(error))


def _document(text: str) -> dict[str, Any]:
    """A file's document, or one that is the argument itself."""
    try:
        is_inline = text.lstrip().startswith("{")
        found = json.loads(text if is_inline else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{text} is not a JSON document: {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{text} is not a JSON object.")
    return found


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
