"""A base configuration as a recipe of NeMo 2.0, built by NeMo-Run. Not: its text (export).

NeMo is imported when the first recipe is built.

A recipe is fiddle's or NeMo-Run's ``Partial``; nothing of it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.core import ConfigError, RawConfig, dotted
from autoconf_launch.core import KeyPath as Keys

from .export import IMPORTS, Call, Name, recipe_call, set_after, tokenizer_call


def is_nemo_installed() -> bool:
    """Whether recipes can be built here: NeMo-Run, and a NeMo with language models."""
    found = find_spec("nemo_run") and find_spec("nemo")
    return bool(found and find_spec("nemo.collections.llm"))


def built_recipe(document: Mapping[str, Any]) -> Any:
    """The recipe that a configuration in NeMo 2.0's layout describes.

    Raises:
        ConfigError: a value is missing, or NeMo cannot be imported.
    """
    config = RawConfig(document)
    recipe = made(recipe_call(pretraining(config), config))
    for path, value in set_after(config):
        section = recipe
        for name in path[:-1]:
            section = getattr(section, name)
        setattr(section, path[-1], value)
    return recipe


def made(value: Any) -> Any:
    """A call of a recipe's code as the object that it makes."""
    if isinstance(value, Name):
        return resolve_name(value.words)
    if isinstance(value, list):
        return [made(one) for one in value]
    if not isinstance(value, Call):
        return value
    function, first = resolve_name(value.function), [made(one) for one in value.first]
    return function(*first, **{name: made(one) for name, one in value.fields.items()})


def resolve_name(words: str) -> Any:
    """What a name in a recipe's code stands for.

    Raises:
        ConfigError: NeMo, or what it needs, cannot be imported.
    """
    first, _, rest = words.partition(".")
    module, attribute = IMPORTS[first]
    try:
        found = _imported(module, attribute)
    except ImportError as error:
        raise ConfigError(
            f"{words} of NeMo is needed and cannot be imported ({error}); install "
            "nemo_toolkit[llm]==2.7.3 and nemo_run."
        ) from error
    return getattr(found, rest) if rest else found


def _imported(module: str, attribute: str) -> Any:
    """As ``from module import attribute`` does."""
    if not module:
        return import_module(attribute)
    outer = import_module(module)
    return getattr(outer, attribute, None) or import_module(f"{module}.{attribute}")


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
        module = resolve_name("llm.PreTrainingDataModule")
        recipe.data = type(data)(module, paths=paths, **kept)
