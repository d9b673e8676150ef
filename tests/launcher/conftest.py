"""A machine with GPUs, as far as the launcher can see: a driver's program that tells of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

Driver: TypeAlias = Callable[..., None]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Call it with each GPU's MiB: from then on ``nvidia-smi`` tells of these."""
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)

    def show(*memory_mib: int | str, names: Sequence[str] = ()) -> None:
        rows = (
            f"{index}, GPU-{index}abc-{index}, {name}, {mib}"
            for index, (name, mib) in enumerate(
                zip(names or [f"NVIDIA X{i}" for i in range(9)], memory_mib, strict=False)
            )
        )
        program = folder / "nvidia-smi"
        program.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(rows) + "\nEND\n")
        program.chmod(0o755)

    return show
