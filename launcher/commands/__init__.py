"""One module per verb."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .tune import run_tune
else:
    __getattr__ = attach(
        __name__,
        {
            ".tune": "run_tune",
        },
    )
