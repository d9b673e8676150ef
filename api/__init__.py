"""The public names of autoconf-launch, each imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoconf_launch.autotuner.settings import AutotuningSettings
    from autoconf_launch.autotuner.space import SearchSpace, build_space
    from autoconf_launch.autotuner.study import Study
    from autoconf_launch.autotuner.summary import Summary, summarise
    from autoconf_launch.autotuner.trial import Measurement, Record, Trial
    from autoconf_launch.core import (
        AutoconfError,
        Candidate,
        ConfigError,
        Failure,
        FailureKind,
        Layout,
        ModelSpec,
    )
    from autoconf_launch.launcher.auto_configurator.configurator import AutoConfigurator
    from autoconf_launch.launcher.cli import main
    from autoconf_launch.launcher.planner.questions import (
        fit,
        plan,
        recommend,
        tune,
        validate,
    )
    from autoconf_launch.runtime import Engine, initialize

_HOME = {
    "AutoConfigurator": "launcher.auto_configurator.configurator",
    "AutoconfError": "core",
    "AutotuningSettings": "autotuner.settings",
    "Candidate": "core",
    "ConfigError": "core",
    "Engine": "runtime",
    "Failure": "core",
    "FailureKind": "core",
    "Layout": "core",
    "Measurement": "autotuner.trial",
    "ModelSpec": "core",
    "Record": "autotuner.trial",
    "SearchSpace": "autotuner.space",
    "Study": "autotuner.study",
    "Summary": "autotuner.summary",
    "Trial": "autotuner.trial",
    "build_space": "autotuner.space",
    "fit": "launcher.planner.questions",
    "initialize": "runtime",
    "main": "launcher.cli",
    "plan": "launcher.planner.questions",
    "recommend": "launcher.planner.questions",
    "summarise": "autotuner.summary",
    "tune": "launcher.planner.questions",
    "validate": "launcher.planner.questions",
}

__all__ = [
    "AutoConfigurator",
    "AutoconfError",
    "AutotuningSettings",
    "Candidate",
    "ConfigError",
    "Engine",
    "Failure",
    "FailureKind",
    "Layout",
    "Measurement",
    "ModelSpec",
    "Record",
    "SearchSpace",
    "Study",
    "Summary",
    "Trial",
    "build_space",
    "fit",
    "initialize",
    "main",
    "plan",
    "recommend",
    "summarise",
    "tune",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
