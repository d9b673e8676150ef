"""Names, order and defaults are NeMo 2.0's."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from autoconf_launch import AutoConfigurator

_API: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "recommend" / "nemo2_api.json").read_text()
)
_GUIDE = ("model", "num_nodes", "seq_length", "data_paths", "tokenizer_path", "global_batch_size")


_SEARCHED = {
    "context_parallel_sizes": "auto",
    "expert_parallel_sizes": "auto",
    "vocab_size": None,
}
"""Values that follow from the model or are searched here; NeMo has constants."""


def test_the_constructor_begins_with_that_of_nemo2() -> None:
    known = _API["AutoConfigurator.__init__"]
    ours = list(inspect.signature(AutoConfigurator).parameters.values())
    assert [one.name for one in ours[: len(known)]] == [one["name"] for one in known]
    defaults = [
        list(one.default) if isinstance(one.default, tuple) else one.default for one in ours
    ]
    assert defaults[: len(known)] == [_SEARCHED.get(one["name"], one["default"]) for one in known]


def test_the_parameters_of_the_guide_follow() -> None:
    names = list(inspect.signature(AutoConfigurator).parameters)
    first = len(_API["AutoConfigurator.__init__"])
    assert tuple(names[first : first + len(_GUIDE)]) == _GUIDE


def test_get_results_has_the_parameters_of_nemo2() -> None:
    found = inspect.signature(AutoConfigurator.get_results).parameters
    defaults = {name: one.default for name, one in found.items() if name != "self"}
    assert defaults == _API["get_results"]
