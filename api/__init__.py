"""The public names of autoconf-launch, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from autoconf_launch.autotuner.playoff import Summary, summarise
    from autoconf_launch.autotuner.search import Study
    from autoconf_launch.autotuner.space import (
        AutotuningSettings,
        Measurement,
        Record,
        SearchSpace,
        Trial,
        build_space,
    )
    from autoconf_launch.core import (
        AutoconfError,
        Candidate,
        ConfigError,
        Failure,
        FailureKind,
        Layout,
        ModelSpec,
    )
    from autoconf_launch.launcher.cli import main
    from autoconf_launch.launcher.questions import (
        fit,
        fit_inference,
        plan,
        plan_inference,
        recommend,
        tune,
        validate,
    )
    from autoconf_launch.nemo.configurator import AutoConfigurator
    from autoconf_launch.runtime.engine import Engine, initialize
else:
    __getattr__ = attach(
        __name__,
        {
            "autoconf_launch.autotuner.playoff": "Summary summarise",
            "autoconf_launch.autotuner.search": "Study",
            "autoconf_launch.autotuner.space": (
                "AutotuningSettings Measurement Record SearchSpace Trial build_space"
            ),
            "autoconf_launch.core": (
                "AutoconfError Candidate ConfigError Failure FailureKind Layout ModelSpec"
            ),
            "autoconf_launch.launcher.cli": "main",
            "autoconf_launch.launcher.questions": (
                "fit fit_inference plan plan_inference recommend tune validate"
            ),
            "autoconf_launch.nemo.configurator": "AutoConfigurator",
            "autoconf_launch.runtime.engine": "Engine initialize",
        },
    )

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
    "fit_inference",
    "initialize",
    "main",
    "plan",
    "plan_inference",
    "recommend",
    "summarise",
    "tune",
    "validate",
]


def __dir__() -> list[str]:
    return sorted(__all__)
