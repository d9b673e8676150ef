"""Files and trackers of a trial, kept away from the user's own."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .after_import import change_on_import, safely
    from .left_behind import Surroundings
else:
    __getattr__ = lazy_names(__name__, __file__)
