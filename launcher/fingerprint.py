"""What is measured, as a value to compare. Not: the journal that carries it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import socket
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from autoconf_launch.autotuner.cluster import ClusterSpec
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.core import config_keys as keys

from .dialects import ScriptSource
from .journal import Fingerprint
from .request import LaunchRequest

_VERSIONED = ("autoconf-launch", "torch", "numpy")
_SECRET = re.compile(r"(token|secret|passw|api[-_]?key|credential|auth)", re.IGNORECASE)
HIDDEN = "***"


def fingerprint(
    request: LaunchRequest,
    cluster: ClusterSpec,
    source: ScriptSource,
    settings: AutotuningSettings,
) -> Fingerprint:
    """Everything that a measurement depends on and the search does not change."""
    return Fingerprint(
        script=_digest(_script_bytes(request)),
        arguments=without_secrets(
            argument
            for index, argument in enumerate(source.script_args)
            if index != source.config_argument
        ),
        config=_config_digest(source, settings),
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


def environment_document(
    request: LaunchRequest, cluster: ClusterSpec, settings: AutotuningSettings
) -> dict[str, object]:
    """Content of ``env.json``; values of flags that look secret are hidden."""
    return {
        "metric": settings.metric,
        "versions": dict(versions()),
        "executable": Path(sys.executable).name,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "devices": [
            {"host": node.host, "name": device.name, "memory_bytes": device.memory_bytes}
            for node in cluster.nodes
            for device in node.devices
        ],
        "argv": list(without_secrets(request.argv)),
    }


def without_secrets(arguments: Iterable[str]) -> tuple[str, ...]:
    """Arguments with the value of each flag hidden whose name looks secret."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        secret = flag.startswith("-") and bool(_SECRET.search(flag))
        shown.append(
            HIDDEN if hide_next else f"{flag}={HIDDEN}" if secret and equals else argument
        )
        hide_next = secret and not equals
    return tuple(shown)


def _script_bytes(request: LaunchRequest) -> bytes:
    path = Path(request.script)
    return path.read_bytes() if path.is_file() else request.script.encode()


def _config_digest(source: ScriptSource, settings: AutotuningSettings) -> str:
    """Of the configuration, further files, variables of frameworks, and which words are used."""
    steps = f"{settings.start_profile_step}-{settings.end_profile_step}"
    config = source.config.without(keys.AUTOTUNING).to_json()
    others = [file.text for file in source.files if file.position != source.config_argument]
    words = source.words.dialect, source.words.arguments
    return _digest(f"{config} {steps} {others} {source.environment} {words}".encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
