"""Layouts on clusters whose nodes differ: which nodes, in what order, what each of them does."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .kinds import MachineKind, sub_clusters
    from .rows import MixedRow, StagePlan, placement
else:
    __getattr__ = lazy_names(__name__, __file__)
