"""Named trainings with their clusters, for ``plan --preset``, from FASOP."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autoconf_launch.core import ClusterSpec, ConfigError, Degrees, RawConfig, Recompute

from .clusters import cluster_of_document

_FOLDER = Path(__file__).parent
_PREFIX = "fasop/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A training on a cluster.

    Attributes:
        flags: of ``plan``, with their values; each is a default that a user's own flag replaces.
        cluster: its nodes, with prices.
        degrees: FASOP's degrees, if the preset is restricted to them; its orders of nodes are
            rotations then.
    """

    name: str
    flags: Mapping[str, str]
    cluster: ClusterSpec
    degrees: Degrees | None = None


def preset_names() -> tuple[str, ...]:
    """Names of all presets, as ``fasop/bert``."""
    return tuple(f"{_PREFIX}{name}" for name in _document()["presets"])


def preset(name: str) -> Preset:
    """The preset of a name; case does not matter.

    Raises:
        ConfigError: the name is unknown.
    """
    known = {one.lower(): one for one in preset_names()}
    found = known.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)[0]
        raise ConfigError(f"--preset {name!r} is unknown; did you mean '{known[near]}'?")
    document = _document()
    wanted = document["presets"][found.removeprefix(_PREFIX)]
    training = document["trainings"][wanted["training"]]
    tokens = document["steps"] * training["global_batch"] * training["seq"]
    return Preset(
        name=found,
        flags={
            "--model": training["model"],
            "--cluster": found,
            "--seq": str(training["seq"]),
            "--global-batch": str(training["global_batch"]),
            "--precision": document["precision"],
            "--tokens": str(tokens),
        },
        cluster=_cluster(wanted["nodes"], document["nodes"]),
        degrees=_degrees(wanted.get("tensor_parallel")),
    )


def _cluster(counts: Mapping[str, int], kinds: Mapping[str, Mapping[str, Any]]) -> ClusterSpec:
    groups = [{**kinds[kind], "count": count} for kind, count in counts.items()]
    return cluster_of_document(RawConfig({"nodes": groups}))


def _degrees(tensor: list[int] | None) -> Degrees | None:
    if tensor is None:
        return None
    return Degrees(
        tensor_parallel=tuple(tensor),
        zero_stage=(0,),
        recompute=(Recompute.NONE,),
        sequence_parallel=(False,),
    )


@cache
def _document() -> dict[str, Any]:
    text = (_FOLDER / "fasop" / "presets.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(
        text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return document
