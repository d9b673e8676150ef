"""``validate FILE.csv…``: how wrong predictions are on measurements."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..flags import VerbParser
from ..measurements import calibration_of, score_files, together
from ..report import problem_lines, validation_document, validation_lines


def validate(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, or a file is not a table of measurements.
    """
    flags = _parser().parse_args(arguments)
    calibration = calibration_of(flags.calibrate, flags.seed)
    scored = score_files([Path(name) for name in flags.files], calibration)
    everything = together([one for _, one in scored])
    if flags.json:
        document = validation_document(scored, everything, calibration)
        yield json.dumps(document, indent=2, allow_nan=False)
        return
    yield from problem_lines([file for file, _ in scored])
    yield from validation_lines(scored, everything)


def _parser() -> VerbParser:
    parser = VerbParser(
        prog="autoconf-launch validate",
        description="Predict every row of measured tables and report the errors.",
    )
    parser.add_argument("files", metavar="FILE.csv", nargs="+", help="a table of measurements")
    parser.add_argument(
        "--calibrate",
        type=int,
        metavar="N",
        help="fit the correction factors on N random rows of each model, score the others",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="K", help="seed of that draw")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser
