"""Another batch size for the script's DataLoaders, where the user asked for it.

Loaders with a batch sampler of their own, or without automatic batching, stay as they are.
"""

from __future__ import annotations

import inspect
import os
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"


def set_batch_size() -> None:
    """Do as the environment says; nothing where it says nothing."""
    value = os.environ.get(BATCH_VARIABLE)
    if not value:
        return
    size = int(value)
    loader: Any = DataLoader
    original = loader.__init__
    signature = inspect.signature(original)

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        given = signature.bind(self, *arguments, **named)
        batched = given.arguments.get("batch_size", 1) is not None
        if batched and given.arguments.get("batch_sampler") is None:
            given.arguments["batch_size"] = size
        original(*given.args, **given.kwargs)

    loader.__init__ = __init__
