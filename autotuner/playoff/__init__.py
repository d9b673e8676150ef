"""What follows a search: the best compared in turn, the verification run, the summary."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .contenders import FinalsBudget, fit_together, ranking
    from .findings import launch_findings, repeat_findings, study_findings
    from .meaning import LossComparison, MeaningVerdict, Obstacle
    from .playoff import Decider, Finals
    from .resolution import Resolution
    from .soak import FEWEST_STEPS, Soak, soak_steps
    from .soak_report import SoakReport, soaked_name_of
    from .summary import (
        LearningRateAdvice,
        Summary,
        SummaryRow,
        best_of,
        summarise,
        summarise_records,
    )
    from .winner import CAUSELESS, alpha_of, safe_order, settled
else:
    __getattr__ = lazy_names(__name__, __file__)
