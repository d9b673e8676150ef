"""The command of one rank of a search; see :mod:`.train`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autoconf_launch.core import ConfigError, RawConfig

from .train import train


def main() -> None:
    """Read two JSON files and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True, metavar="FILE.json")
    parser.add_argument("--config", required=True, metavar="FILE.json", help="the runtime's own")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    given = parser.parse_args()
    base = RawConfig(json.loads(Path(given.base_config).read_text(encoding="utf-8")))
    try:
        train(base, given.config, given.steps, _write)
    except ConfigError as error:
        sys.exit(str(error))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
