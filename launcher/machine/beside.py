"""Which launches can live side by side on this machine, and why others cannot. Not: how many.

Each sentence goes on after "because".
"""

from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.core import ClusterSpec, RankResult, decode

from ..dialects import ScriptSource
from ..dialects.script_facts import facts_of
from ..request import LaunchRequest

_HERE = ("local", "zygote")
"""Backends that start launches on this machine, and at once."""


def why_apart(request: LaunchRequest, cluster: ClusterSpec) -> str:
    """Why launches cannot share this machine at all; empty where they can."""
    if len(cluster.nodes) > 1:
        return "each of them takes several hosts"
    if request.rendezvous.port:
        return f"all of them meet at port {request.rendezvous.port}"
    if request.alone and len(cluster.devices) > 1:
        return "the script starts its ranks itself, which meet where it says"
    return ""


def why_not_in_turn(
    request: LaunchRequest, cluster: ClusterSpec, source: ScriptSource, results: Path
) -> str:
    """Why launches cannot live together and compute in turn; empty where they can.

    Args:
        request: as it is launched.
        cluster: that each launch takes.
        source: of the script.
        results: folder of the trials so far, whose ranks may have seen a reason.
    """
    if apart := why_apart(request, cluster):
        return apart
    if request.backend not in _HERE:
        return f"backend {request.backend} decides when they run"
    texts = (source.text, *source.modules)
    if any(facts_of(text).says_where_to_meet for text in texts):
        return "the script says itself where its ranks meet"
    if any(_is_crowded(path) for path in results.glob("*/result*.json")):
        return "more processes than one train for the same rank"
    return ""


def _is_crowded(path: Path) -> bool:
    try:
        return decode(RankResult, json.loads(path.read_bytes())).crowded
    except (OSError, ValueError):
        return False
