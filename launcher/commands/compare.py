"""``compare A B [--json]``: two results folders side by side. Not: what differs (comparison)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..flags import VerbParser
from ..report import comparison_document, comparison_text
from ..results import compare_results, read_results


def compare(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, or a folder is not a results folder.
        ResultsFolderError: a journal is damaged.
    """
    flags = _parser().parse_args(arguments)
    a, b = read_results(Path(flags.a)), read_results(Path(flags.b))
    found = compare_results(a, b)
    if flags.json:
        yield json.dumps(comparison_document(a, b, found), indent=2)
    else:
        yield comparison_text(a, b, found)


def _parser() -> VerbParser:
    parser = VerbParser(
        prog="autoconf-launch compare",
        description="Compare two tuning runs; ratios are of B over A, above 1 where B is faster.",
    )
    parser.add_argument("a", metavar="A", help="a results folder")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser
