"""Layouts on clusters whose nodes differ: which nodes, in what order, what each of them does."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .candidates import MIXED_DEGREES, MixedQuestion, OrderRule
    from .front import (
        Choice,
        ChoiceRule,
        PriceRange,
        price_range,
        reprice,
        rivals,
    )
    from .given import GivenStages, given_stages
    from .kinds import MachineKind, MeasuredLayers, sub_clusters
    from .orders import MOST_ORDERS, node_orders, rotations
    from .rows import MixedRow, StagePlan, placement
    from .search import MixedPlan, every_row, mixed_plan
else:
    __getattr__ = lazy_names(__name__, __file__)
