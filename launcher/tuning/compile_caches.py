"""A compile cache for each configuration of a tune, so that none profits from another.

torch.compile spends up to a minute on a first launch that a second one saves. With torch's own
cache, which all launches share, a candidate starts early or late by what ran before it, in this
tune or ever; and a step that compiles again counts for one and not for the other. With a cache for
each configuration every first launch compiles, the baseline's too, so that a launch is predicted
from others like it; the launches that measure again find their kernels ready.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from autoconf_launch.autotuner.measurement import measured_name
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Triton's cache lies below it, unless the user has set that one's variable."""


class CompileCaches:
    """Folders on the local disk of each host; those of this machine live as long as this object.

    A results folder is often on a network's disk, where thousands of small files are slow.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        """No folder yet; ``variables`` are those that the user sets for ranks."""
        self._is_set = VARIABLE in os.environ or VARIABLE in variables
        self._root: Path | None = None

    def variables(self, launch: str) -> tuple[tuple[str, str], ...]:
        """What the ranks of a launch get, by its name; nothing if the user chose a cache."""
        if self._is_set:
            return ()
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="autoconf_launch_compiled_"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        name = measured_name(launch.removesuffix(SOAK_SUFFIX))
        return ((VARIABLE, str(self._root / name)),)
