"""What a trial saves once it trains, kept away from the user's own checkpoints. Not: other files.

A checkpoint of a trial would be loaded by the next one, and by the training itself; one that the
user has would be overwritten. What is saved before the first step is data, and stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import torch


class SavedFiles:
    """Follows ``torch.save``; one for each process."""

    def __init__(self, folder: str, was_there: Callable[[Path], bool]) -> None:
        """``folder`` is the trial's; ``was_there`` says of a path whether it is the user's."""
        self._folder = Path(folder) / "saved"
        self._was_there = was_there
        self._made: dict[Path, None] = {}
        self._training = False

    def install(self) -> None:
        """Listen from here on."""
        original = torch.save

        @wraps(original)
        def save(obj: object, f: Any, *arguments: Any, **named: Any) -> None:
            original(obj, self._target(f) if self._training else f, *arguments, **named)

        torch.save = save

    def begin(self) -> None:
        """The script has made a step: what it saves from here on is of its training."""
        self._training = True

    def put_away(self) -> None:
        """Move what was made below the trial's folder."""
        for path in self._made:
            with suppress(OSError):
                if path.is_file():
                    shutil.move(path, self._place(path))
        self._made.clear()

    def _target(self, file: Any) -> Any:
        """Where to write: as the script says, but never over what is not the trial's."""
        name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
        if not isinstance(name, (str, os.PathLike)):
            return file
        path = Path(os.fspath(name)).absolute()
        if path in self._made or not self._was_there(path):
            self._made[path] = None
            return file
        return self._place(path) if name is file else file

    def _place(self, path: Path) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{os.getpid()}_{path.name}"
