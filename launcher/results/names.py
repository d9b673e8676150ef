"""Which names a launch in a journal can have: those that candidates are given, and suffixes."""

from __future__ import annotations

import re

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX, FINAL_SUFFIX
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX
from autoconf_launch.core import DecodeError

_SIZE = r"[0-9][0-9.e+-]*"
_WORD = r"[A-Za-z0-9.~%+-]+"
_OF_A_TUNE = rf"z[0-3](_{_WORD})*_gas{_SIZE}_tmbspg{_SIZE}"
_OF_A_SEARCH = (
    rf"[\w.+-]+_{_SIZE}b_{_SIZE}nodes_tp_{_SIZE}_pp_{_SIZE}_cp_{_SIZE}_ep_{_SIZE}_mbs_{_SIZE}"
    r"(_act_ckpt_(None|[0-9]+)_num_mbs_act_(None|[0-9]+)_act_per_pipe_(None|[0-9]+)(_selective)?"
    r"|_vp_(None|[0-9]+)(_act_ckpt_([0-9]+|full|selective))?(_gbs_[0-9]+)?)"
)
"""A run's name in NeMo 1.0, or in NeMo 2.0 with recomputation and another batch at its end."""
_OF_AN_INFERENCE_SEARCH = rf"[\w.+-]+_tp{_SIZE}_pp{_SIZE}_bs{_SIZE}"
_SUFFIXES = "|".join(map(re.escape, (AGAIN_SUFFIX, FINAL_SUFFIX, SOAK_SUFFIX)))
_NAME = re.compile(rf"({_OF_A_TUNE}|{_OF_A_SEARCH}|{_OF_AN_INFERENCE_SEARCH})({_SUFFIXES})*")
_MOST_BYTES = 255
"""Limit of a file's name."""


def require_names(*names: str) -> None:
    """Refuse a name that no candidate and no launch of one has.

    What a journal names is read and written in the results folder, so it must be none of the
    folder's own files and lead nowhere else.

    Raises:
        DecodeError: there is one.
    """
    for name in names:
        if len(name) > _MOST_BYTES or not _NAME.fullmatch(name):
            raise DecodeError(f"{name!r} is not the name of a trial")
