"""The answer no, as an exit code needs it. Not: how it was found (autotuner)."""

from __future__ import annotations

from autoconf_launch.core import AutoconfError


class DoesNotFitError(AutoconfError):
    """``fit`` has said no, and its report has been printed."""
