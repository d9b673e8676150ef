"""The GPU of one rank: who else uses it, how it does under load, and whether torch can use it."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from .driver import DriverRow, has_pending_rows, read_gpus, users_of

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Card:
    """To be made before this process uses the GPU: what runs there then is somebody else's."""

    def __init__(self) -> None:
        self._before = own_gpu(read_gpus())
        self._uuid = str(self._before["uuid"]) if self._before else ""
        self._users = users_of(self._uuid) if self._uuid else []
        self._asks = ThreadPoolExecutor(1)

    def look(self) -> Future[DriverRow | None]:
        """Ask for its state, to be seen while it computes."""
        return self._asks.submit(lambda: own_gpu(read_gpus()) if self._uuid else None)

    def document(
        self, device: torch.device, under_load: DriverRow | None
    ) -> dict[str, Any] | None:
        """All that was seen; None for a rank without a GPU."""
        if self._before is None and device.type != "cuda":
            return None
        state = under_load or self._before or {}
        seen = torch.cuda.get_device_name(device) if device.type == "cuda" else state.get("name")
        pending = state.get("retired_pending") == "Yes" or has_pending_rows(self._uuid)
        return {
            **state,
            "name": seen,
            "users": self._users,
            "repair_pending": pending,
            "is_usable": device.type == "cuda",
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }


def own_gpu(gpus: list[DriverRow]) -> DriverRow | None:
    """The GPU that CUDA shows this rank; None for a rank of a CPU and for a slice of a GPU."""
    local, visible = int(os.environ.get("LOCAL_RANK", "0")), os.environ.get(_VISIBLE)
    names = list(map(str, range(len(gpus)))) if visible is None else visible.split(",")
    if local >= len(names) or not (name := names[local].strip()):
        return None
    return next((g for g in gpus if name == str(g["slot"]) or _begins(g["uuid"], name)), None)


def _begins(uuid: object, name: str) -> bool:
    return name.startswith("GPU-") and str(uuid).startswith(name)
