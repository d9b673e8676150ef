"""Finds what trains in an external script: root module, optimizer, loader, strategy."""

from .hook import Hooks
from .loader_batch import set_batch_size
from .manual_updates import ManualUpdates, UpdatesByHand, leave_after
from .root_module import ModuleLocator, watch_compile, watch_outer_calls
from .strategy import find_strategy, stated_precision
