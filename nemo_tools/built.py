"""A base configuration as a recipe of NeMo 2.0, built by NeMo-Run. Not: its text (export).

NeMo is imported when the first recipe is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from autoconf_launch.autotuner.recommend.base_reader import pretraining
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.launcher.dialects.export.base.nemo2_call import (
    IMPORTS,
    Call,
    Name,
    recipe_call,
    set_after,
)


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
        return named(value.words)
    if isinstance(value, list):
        return [made(one) for one in value]
    if not isinstance(value, Call):
        return value
    function, first = named(value.function), [made(one) for one in value.first]
    return function(*first, **{name: made(one) for name, one in value.fields.items()})


def named(words: str) -> Any:
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
