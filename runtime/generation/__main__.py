"""The command of one rank of an inference search; see :mod:`.measure`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autoconf_launch.core import ConfigError, GenerationTask, RawConfig, decode

from .measure import measure_generation


def main() -> None:
    """Read two JSON files and generate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True, metavar="FILE.json")
    parser.add_argument("--generation", required=True, metavar="FILE.json")
    parser.add_argument("--output-json", type=Path, metavar="FILE.json", help="figures of a run")
    given = parser.parse_args()
    base = RawConfig(json.loads(Path(given.base_config).read_text(encoding="utf-8")))
    asked = decode(GenerationTask, json.loads(Path(given.generation).read_text(encoding="utf-8")))
    try:
        measure_generation(base, asked, given.output_json or _write)
    except ConfigError as error:
        sys.exit(str(error))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
