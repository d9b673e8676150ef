"""An external rank's result: the process that reports, its end, and the report."""

from .claim import Helper, environment_rank, mark_children
from .ending import Endings, Reasons, exit_now
from .rank_reporter import Live, RankReporter, claim_rank, claim_stepless_rank
