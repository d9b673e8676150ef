"""Finds the parts of an external script's training: root module, optimizer, loader, strategy."""

from .hook import Hooks, ManualUpdates, UpdatesByHand, leave_after, set_batch_size
from .root_module import ModuleLocator
from .strategy import find_strategy, stated_precision
