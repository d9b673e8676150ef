"""ARCHITECTURE.md names rooms and modules that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .commands import ROOT

DOCUMENT = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
LAYERS = ("core", "autotuner", "tuning_spaces", "runtime", "launcher", "nemo_tools", "api")
NAME = re.compile(r"[a-z_]+(?:/|\.py)")


def rooms_of_the_tree() -> Iterator[str]:
    """Paths that the tree at the top of the document names."""
    tree = DOCUMENT.partition("```\n")[2].partition("```")[0]
    layer = ""
    for line in tree.splitlines():
        names = re.match(rf"\s*(?:{NAME.pattern}\s+)+", line)
        assert names, line
        if not line.startswith(" "):
            layer = names[0].split()[0]
            yield layer
        else:
            yield from (f"{layer}{name}" for name in names[0].split())


def test_the_tree_and_the_text_name_what_is_there() -> None:
    named = list(rooms_of_the_tree())
    assert {f"{layer}/" for layer in LAYERS} <= set(named)
    assert not [one for one in named if is_missing(one)]
    named = re.findall(rf"`((?:{'|'.join(LAYERS)})/[\w/.]*)`", DOCUMENT)
    assert named
    assert not [one for one in named if is_missing(one)]
    short = set(re.findall(r"`(\w+/)`", DOCUMENT))
    folders = {f"{path.name}/" for layer in LAYERS for path in (ROOT / layer).rglob("*")}
    assert not short - folders - {f"{layer}/" for layer in (*LAYERS, "benchmarks")}


def is_missing(path: str) -> bool:
    return not ((ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).exists())
