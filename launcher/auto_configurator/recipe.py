"""Reads values from a recipe: a YAML file, a mapping, or any object with attributes.

NeMo is not needed, and nothing of it is imported. Not: what the values mean (model_facts), nor how
an object becomes data (plain_data).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.recommend.base_reader import RECIPE_PATHS
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import KeyPath as Keys

from ..config_file import read_config
from .model_form import FLAGS, FURTHER, NUMBERS
from .plain_data import Names, Written, written

_MODEL, _CONFIG = "model", "config"
SECTIONS = frozenset({"trainer", "data", "optim", "log", "resume", "peft", "name"})
"""Sections of a recipe's document, beside its model."""
_OF_FILES = ("run", "exp_manager", "autoconf", "family")
"""Sections of a file of NeMo 1.0, or of ours."""
_FURTHER: tuple[Keys, ...] = (
    *(("optim", "config", "clip_grad"), ("log", "ckpt"), ("model", "config", "seq_length")),
)


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
        """What of the recipe is data."""
        return RawConfig(_written(self._root, self._model).value)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Paths of what is not data, such as functions."""
        return _written(self._root, self._model).left_out

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


def _written(root: object, model: object) -> Written:
    """As one document; a model that is given takes the place of the recipe's."""
    parts: dict[str, Any] = dict(root) if isinstance(root, Mapping) else _sections(root)
    if model is not None:
        parts[_MODEL] = model
    if _MODEL in parts:
        parts[_MODEL] = _bare(parts[_MODEL])
    return written(parts, (), _NAMES)


def _sections(root: object) -> dict[str, Any]:
    """Sections of a recipe's object; its other attributes are not read."""
    names = (_MODEL, *sorted(SECTIONS), *_OF_FILES)
    return {name: getattr(root, name) for name in names if hasattr(root, name)}


def _bare(model: object) -> object:
    """A built model's configuration alone: what else it has are weights and state."""
    is_built = hasattr(type(model), "forward") and hasattr(model, _CONFIG)
    return {_CONFIG: getattr(model, _CONFIG)} if is_built else model


def _names(paths: Iterable[Keys]) -> Names:
    found: dict[Keys, list[str]] = {}
    for path in paths:
        for depth in range(len(path)):
            names = found.setdefault(path[:depth], [])
            if path[depth] not in names:
                names.append(path[depth])
    return found


_FIELDS = (*(name for names in (*NUMBERS.values(), *FLAGS.values()) for name in names), *FURTHER)
_NAMES = _names(
    (
        *RECIPE_PATHS,
        *_FURTHER,
        *((_MODEL, _CONFIG, name) for name in _FIELDS),
        *((_MODEL, name) for name in _FIELDS),
    )
)
