"""Layouts on clusters whose nodes differ: which nodes, their order, and their shares."""

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
from .one_layout import GivenStages, given_stages, placement
from .search import every_row, mixed_plan
