"""NeMo 2.0's two functions: candidates as recipes that NeMo-Run runs, and tables of their runs.

NeMo is imported when the first recipe is built. A recipe is fiddle's or NeMo-Run's ``Partial``;
nothing of it is called. Not: which candidates there are, nor how results are read (configurator).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import pretraining
from autoconf_launch.core import ConfigError, RawConfig, dotted_name
from autoconf_launch.core import KeyPath as Keys

from .configurator import AutoConfigurator, SearchResults, is_fiddle
from .export import IMPORTS, Call, Name, recipe_call, set_after, tokenizer_call

_OURS = frozenset({"run", "autoconf", "name"})
"""Sections of our documents that no recipe has."""
_OPTIONAL = frozenset({"log"})
"""Sections that a recipe may lack: its own defaults hold then."""
_PATHS: Keys = ("data", "paths")
_TOKENIZER: Keys = ("data", "tokenizer_path")
_KEPT = ("seq_length", "micro_batch_size", "global_batch_size", "tokenizer", "num_workers")


def generate_configs(runner: AutoConfigurator) -> tuple[Any, dict[str, Any]]:
    """The base configuration, and each candidate's by the name of its run.

    A recipe that is a ``run.Partial`` has candidates that are copies of it. Any other gives
    recipes if NeMo and NeMo-Run are installed, and mappings if they are not.

    Raises:
        ConfigError: the recipe has no place for a value that a candidate sets.
    """
    base, found = runner.generate_configs()
    if is_fiddle(runner.recipe) and runner.model is None:
        edits = runner.edits()
        copies = {name: edited_recipe(runner.recipe, edits[name]) for name in found}
        return edited_recipe(runner.recipe, runner.base_edits()), copies
    if not is_nemo_installed() or "config" not in base.get("model", {}):
        return base, found
    return built_recipe(base), {name: built_recipe(one) for name, one in found.items()}


def get_results(
    base_config: Any = None,
    train_config: AutoConfigurator | None = None,
    path_to_save: str | Path | None = None,
    output_top_n: int = 10,
    log_file_prefix: str = "log-",
) -> SearchResults:
    """Write both tables and print the fastest configurations.

    Args:
        base_config: not needed; NeMo 2.0's call has it.
        train_config: the configurator whose runs are read, from its ``path_to_logs``.
        path_to_save: folder of the tables; None is ``final_results/nemo2`` in the logs.
        output_top_n: how many configurations are printed; 0 prints all.
        log_file_prefix: how names of a run's logs begin, for the reason of its failure.

    Raises:
        ConfigError: ``train_config`` is not a configurator, or TensorBoard's package is needed
            and not installed.
        ResultsFolderError: the folder cannot be written.
    """
    if not isinstance(train_config, AutoConfigurator):
        raise ConfigError(
            f"train_config is {train_config!r}, but must be the AutoConfigurator of the runs."
        )
    results = train_config.get_results(
        path_to_save=path_to_save, output_top_n=output_top_n, log_file_prefix=log_file_prefix
    )
    sys.stdout.write(results.text)
    return results


def is_nemo_installed() -> bool:
    """True if recipes can be built here: NeMo-Run, and a NeMo with language models."""
    found = find_spec("nemo_run") and find_spec("nemo")
    return bool(found and find_spec("nemo.collections.llm"))


def built_recipe(document: Mapping[str, Any]) -> Any:
    """The recipe that a configuration in NeMo 2.0's layout describes."""
    config = RawConfig(document)
    recipe = build_object(recipe_call(pretraining(config), config))
    for path, value in set_after(config):
        section = recipe
        for name in path[:-1]:
            section = getattr(section, name)
        setattr(section, path[-1], value)
    return recipe


def build_object(value: Any) -> Any:
    """A call of a recipe's code as the object that it makes."""
    if isinstance(value, Name):
        return resolve_name(value.words)
    if isinstance(value, list):
        return [build_object(one) for one in value]
    if not isinstance(value, Call):
        return value
    function, first = resolve_name(value.function), [build_object(one) for one in value.first]
    return function(*first, **{name: build_object(one) for name, one in value.fields.items()})


def resolve_name(words: str) -> Any:
    """The object that a name in a recipe's code refers to."""
    first, _, rest = words.partition(".")
    module, attribute = IMPORTS[first]
    try:
        found = _import_attribute(module, attribute)
    except ImportError as error:
        raise ConfigError(
            f"{words} of NeMo is needed and cannot be imported ({error}); install "
            "nemo_toolkit[llm]==2.7.3 and nemo_run."
        ) from error
    return getattr(found, rest) if rest else found


def _import_attribute(module: str, attribute: str) -> Any:
    if not module:
        return import_module(attribute)
    outer = import_module(module)
    return getattr(outer, attribute, None) or import_module(f"{module}.{attribute}")


def edited_recipe(recipe: Any, edits: Iterable[tuple[Keys, Any]]) -> Any:
    """A copy with these values; the recipe itself stays as it is."""
    recipe = copy.deepcopy(recipe)
    for path, value in edits:
        if path[0] in _OURS:
            continue
        if path == _PATHS:
            _set_paths(recipe, value)
        elif path == _TOKENIZER:
            _set(recipe, ("data", "tokenizer"), build_object(tokenizer_call(value)))
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
            f"The recipe has no {dotted_name(path)} to set to {value!r} ({error}); give a recipe "
            "that has one, such as those of nemo.collections.llm."
        ) from error


def _set_paths(recipe: Any, paths: Any) -> None:
    """Set paths on the recipe's own data, or on NeMo's data for pretraining if it has none."""
    data = recipe.data
    try:
        data.paths = paths
    except (AttributeError, TypeError):
        given = vars(data)["__arguments__"]
        kept = {name: given[name] for name in _KEPT if name in given}
        module = resolve_name("llm.PreTrainingDataModule")
        recipe.data = type(data)(module, paths=paths, **kept)
