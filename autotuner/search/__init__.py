"""The study: which trial comes next, and when enough is known."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .limits import FEWEST_TRIALS, MARGIN, SearchLimits, start_bound_s
    from .listed import ListedStudy
    from .optimality_bound import OptimalityBound
    from .pool import Grouping
    from .skipped import Skipped, count_skipped
    from .stop import NoRoom, StopKind, StopReason
    from .study import Study, baseline_trial
else:
    __getattr__ = lazy_names(__name__, __file__)
