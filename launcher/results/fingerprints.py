"""What is measured, as a value to compare."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import socket
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from autoconf_launch.autotuner.space import AutotuningSettings
from autoconf_launch.core import Candidate, ClusterSpec, ConfigError, Layout, RawConfig, Recompute
from autoconf_launch.core import config_keys as keys

from ..request import LaunchRequest
from ..script import NamedFile, ScriptSource, script_path
from ..spelling import Dialect, Rendered, UserSettings, find_argument
from .journal import Fingerprint
from .paths import ResultsPaths
from .secrets import with_digests, without_secrets, write_private

_VERSIONED = ("autoconf-launch", "torch", "numpy")
_ANYWHERE = "trial/ds_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """What the user gave with each searched knob at one value, whatever lists there are.

    ``global_batch`` is the one that every candidate has; None where it may change.
    """

    rendered: Rendered
    global_batch: int | None


_PLAIN = ((1, Recompute.FULL), (3, Recompute.FULL), (0, Recompute.NONE))
"""ZeRO stages and recomputation, no default first: a document may leave a default out."""


def render_unsearched(
    dialect: Dialect, source: ScriptSource, user: UserSettings
) -> Unsearched | None:
    """What is measured of the user's settings; None where this framework cannot spell it."""
    ranks = user.baseline.layout.world_size
    for stage, recompute in _PLAIN:
        plain = Layout(data_parallel=ranks, zero_stage=stage, recompute=recompute)
        try:
            rendered = dialect.render(Candidate(layout=plain), source, _ANYWHERE)
        except ConfigError:
            continue
        return Unsearched(rendered=rendered, global_batch=user.batch_rule.pinned)
    return None


def fingerprint(
    request: LaunchRequest,
    cluster: ClusterSpec,
    source: ScriptSource,
    settings: AutotuningSettings,
    given: Unsearched | None = None,
) -> Fingerprint:
    """Everything that a measurement depends on and the search does not change.

    Of secrets there are digests. Without ``given`` the values of searched knobs count, too.
    """
    arguments = given.rendered.script_args if given else source.script_args
    return Fingerprint(
        script=_digest(_script_bytes(request) + _start_bytes(request)),
        arguments=with_digests(
            argument for index, argument in enumerate(arguments) if index != source.config_argument
        ),
        config=_config_digest(source, settings, given),
        hardware=(
            *(f"{d.name}, limit {request.memory_limit_bytes}" for d in cluster.devices),
            *((str(request.binding),) if request.binding else ()),
        ),
        versions=versions(),
    )


def differences(old: Fingerprint, new: Fingerprint) -> tuple[str, ...]:
    """Names of the parts that changed."""
    return tuple(f.name for f in fields(new) if getattr(old, f.name) != getattr(new, f.name))


def versions() -> tuple[tuple[str, str], ...]:
    """Python's version and those of the packages that a measurement depends on."""
    found = [("python", platform.python_version())]
    for name in _VERSIONED:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def write_environment(
    paths: ResultsPaths,
    request: LaunchRequest,
    cluster: ClusterSpec,
    settings: AutotuningSettings,
    *,
    refused: str = "",
) -> None:
    """Write ``env.json``, without secrets and for its owner alone.

    ``refused``: why the budget has no room for what the same command would run next.
    """
    document = {
        "metric": settings.metric,
        "effort": settings.effort,
        "versions": dict(versions()),
        "executable": Path(sys.executable).name,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "devices": [
            {"host": node.host, "name": device.name, "memory_bytes": device.memory_bytes}
            for node in cluster.nodes
            for device in node.devices
        ],
        "script": Path(request.script).name,
        "argv": list(without_secrets(request.argv)),
        **({"refused": refused} if refused else {}),
    }
    write_private(paths.environment, json.dumps(document, indent=2) + "\n")


def _script_bytes(request: LaunchRequest) -> bytes:
    path = script_path(request)
    return path.read_bytes() if path.is_file() else request.script.encode()


def _start_bytes(request: LaunchRequest) -> bytes:
    """What tells a module from the same file started by its path; its name is its package, too."""
    return f"-m {request.script}".encode() if request.kind == "module" else b""


def _config_digest(
    source: ScriptSource, settings: AutotuningSettings, given: Unsearched | None
) -> str:
    """Digest of the configuration, further files, variables of frameworks and arguments in use."""
    steps = f"{settings.start_profile_step}-{settings.end_profile_step}"
    config = given.rendered.config if given else source.config
    arguments = given.rendered.script_args if given else source.script_args
    as_they_are = [
        file.text
        for file in source.files
        if (file.position is None or file.position != source.config_argument)
        and not _is_replaced(file, source.script_args, arguments)
    ]
    made = (given.rendered.files, given.rendered.environment, given.global_batch) if given else ()
    parts = (
        _whatever_its_order(config.without(keys.AUTOTUNING).without((keys.SCHEMA_KEY,))),
        steps,
        as_they_are,
        _free_variables(source, given),
        (source.modules, source.composed),
        (source.words.dialect, source.words.arguments),
        made,
    )
    return _digest(" ".join(map(str, parts)).encode())


def _is_replaced(file: NamedFile, given: tuple[str, ...], rendered: tuple[str, ...]) -> bool:
    """Whether a launch reads a copy of a file instead."""
    if file.position is None:
        return find_argument(rendered, (file.flag,)) is not None
    return rendered[file.position] != given[file.position]


def _whatever_its_order(config: RawConfig) -> str:
    """The document; a key that was ``auto`` is put at its end."""
    return json.dumps(json.loads(config.to_json()), sort_keys=True)


def _free_variables(source: ScriptSource, given: Unsearched | None) -> tuple[tuple[str, str], ...]:
    """Variables of frameworks that no candidate sets."""
    changed = {name for name, _ in given.rendered.environment} if given else set()
    return tuple(pair for pair in source.environment if pair[0] not in changed)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
