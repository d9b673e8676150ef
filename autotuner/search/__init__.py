"""The study: it chooses the next trial and ends the search."""

from .limits import FEWEST_TRIALS, MARGIN, SearchLimits, start_bound_s
from .listed import ListedStudy
from .optimality_bound import OptimalityBound
from .pool import Grouping
from .repeats import Drift, at_last_level, drift
from .skipped import Skipped, count_skipped
from .stop import NoRoom, StopKind, StopReason
from .study import Study, baseline_trial
