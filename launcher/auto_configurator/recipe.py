"""Reads values from a recipe: a YAML file, a mapping, or any object with attributes.

NeMo is not needed, and nothing of it is imported. Not: what the values mean (model_facts).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, RawConfig

from ..config_file import read_config

_MODEL = "model"


class Recipe:
    """Values by path, whatever the recipe is made of; None where a part is missing.

    ``model`` takes the place of the recipe's own where it is given.
    """

    __slots__ = ("_model", "_root", "where")

    def __init__(self, root: object, where: str, model: object = None) -> None:
        self._root = root
        self._model = model
        self.where = where

    def get(self, *dotted: str) -> Any:
        """The first of these paths (``trainer.num_nodes``) that has a value."""
        values = (self._at(path) for path in dotted)
        return next((value for value in values if value is not None), None)

    def whole(self, *dotted: str, least: int = 1) -> int | None:
        """The same as a whole number; None for "auto".

        Raises:
            ConfigError: it is none, or below ``least``.
        """
        value = self.get(*dotted)
        if value is None or value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"{self.where}: {dotted[0]} is {value!r}, but must be a whole number of at least "
                f"{least}."
            )
        return value

    @property
    def document(self) -> RawConfig:
        """What of the recipe a document can hold; nothing of an object."""
        document = dict(self._root) if isinstance(self._root, dict) else {}
        if self._model is not None:
            document[_MODEL] = self._model
        return RawConfig({name: value for name, value in document.items() if _is_plain(value)})

    def _at(self, dotted: str) -> Any:
        first, _, rest = dotted.partition(".")
        if first != _MODEL or self._model is None:
            return _value_at(self._root, dotted)
        return _value_at(self._model, rest) if rest else self._model


def read_recipe(recipe: object, model: object = None) -> Recipe:
    """A recipe as it was given, with another model where one is; None is one without values.

    Raises:
        ConfigError: a file cannot be read, or the value cannot hold a recipe.
    """
    if isinstance(model, Mapping):
        model = _plain(model)
    elif isinstance(model, (str, Path)) and Path(model).is_file():
        model = read_config(Path(model)).to_dict()
    if isinstance(recipe, (str, Path)):
        return Recipe(read_config(Path(recipe)).to_dict(), str(recipe), model)
    if isinstance(recipe, (bool, int, float, list, tuple, set)):
        raise ConfigError(
            f"recipe is {recipe!r}, but must be a YAML file, a mapping, or an object with "
            "attributes such as model and num_nodes."
        )
    return Recipe(_root(recipe), "recipe", model)


def _root(recipe: object) -> object:
    if recipe is None:
        return {}
    if isinstance(recipe, RawConfig):
        return recipe.to_dict()
    return _plain(recipe) if isinstance(recipe, Mapping) else recipe


def _value_at(value: object, dotted: str) -> Any:
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if value is None:
            return None
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _is_plain(value: Any) -> bool:
    """Whether a document can hold a value."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float))
