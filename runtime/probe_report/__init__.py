"""An external rank's result: which process reports, how it ends, what it says."""

from .claim import Helper, environment_rank, mark_children
from .ending import Endings, Reasons, exit_now
from .rank_reporter import Live, RankReporter, claim_rank, claim_stepless_rank
