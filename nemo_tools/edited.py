"""A user's recipe with values set by path. Not: which values (``launcher.auto_configurator``).

A recipe is fiddle's or NeMo-Run's ``Partial``; nothing of it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from autoconf_launch.core import ConfigError, dotted
from autoconf_launch.core import KeyPath as Keys
from autoconf_launch.launcher.dialects.export.base.nemo2_call import tokenizer_call

from .built import made, named

_OURS = frozenset({"run", "autoconf", "name"})
"""Sections of our documents that no recipe has."""
_OPTIONAL = frozenset({"log"})
"""Sections that a recipe may lack: its own defaults hold then."""
_PATHS: Keys = ("data", "paths")
_TOKENIZER: Keys = ("data", "tokenizer_path")
_KEPT = ("seq_length", "micro_batch_size", "global_batch_size", "tokenizer", "num_workers")


def is_recipe_object(value: object) -> bool:
    """Whether it is a configuration of fiddle's, as NeMo-Run's are."""
    has_names = hasattr(value, "__dict__") and not isinstance(value, type)
    return has_names and isinstance(vars(value).get("__arguments__"), Mapping)


def edited_recipe(recipe: Any, edits: Iterable[tuple[Keys, Any]]) -> Any:
    """A copy with these values; the recipe itself stays as it is.

    Raises:
        ConfigError: a section or a field of it is missing.
    """
    recipe = copy.deepcopy(recipe)
    for path, value in edits:
        if path[0] in _OURS:
            continue
        if path == _PATHS:
            _set_paths(recipe, value)
        elif path == _TOKENIZER:
            _set(recipe, ("data", "tokenizer"), made(tokenizer_call(value)))
        else:
            _set(recipe, path, value)
    return recipe


def _set(recipe: Any, path: Keys, value: Any) -> None:
    section = recipe
    for name in path[:-1]:
        section = getattr(section, name, None)
    if section is None and path[0] in _OPTIONAL:
        return
    try:
        setattr(section, path[-1], value)
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"The recipe has no {dotted(path)} to set to {value!r} ({error}); give a recipe that "
            "has one, such as those of nemo.collections.llm."
        ) from error


def _set_paths(recipe: Any, paths: Any) -> None:
    """On the recipe's own data where they have paths, else on NeMo's data for pretraining."""
    data = recipe.data
    try:
        data.paths = paths
    except (AttributeError, TypeError):
        given = vars(data)["__arguments__"]
        kept = {name: given[name] for name in _KEPT if name in given}
        module = named("llm.PreTrainingDataModule")
        recipe.data = type(data)(module, paths=paths, **kept)
