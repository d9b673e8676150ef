"""One module per verb."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .schema import schema_names
    from .tune import run_tune
else:
    __getattr__ = lazy_names(__name__, __file__)
