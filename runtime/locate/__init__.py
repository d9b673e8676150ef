"""Finds what trains in an external script: root module, optimizer, loader, strategy."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .hook import Hooks
    from .loader_batch import set_batch_size
    from .manual_updates import ManualUpdates, UpdatesByHand, leave_after
    from .root_module import ModuleLocator, watch_compile, watch_outer_calls
    from .strategy import find_strategy, stated_precision
else:
    __getattr__ = lazy_names(__name__, __file__)
