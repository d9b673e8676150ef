"""Layouts on clusters whose nodes differ: which nodes, in what order, what each of them does."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .candidates import (
        MIXED_DEGREES,
        MOST_ORDERS,
        MixedQuestion,
        OrderRule,
        node_orders,
        rotations,
    )
    from .front import (
        Choice,
        ChoiceRule,
        PriceRange,
        price_range,
        reprice,
        rivals,
    )
    from .kinds import MachineKind, MeasuredLayers, sub_clusters
    from .rows import GivenStages, MixedRow, StagePlan, given_stages, placement
    from .search import MixedPlan, every_row, mixed_plan
else:
    __getattr__ = lazy_names(__name__, __file__)
