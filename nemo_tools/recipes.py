"""NeMo 2.0's two functions: candidates as recipes that NeMo-Run runs, and tables of their runs.

Not: which candidates there are, nor how results are read (``launcher.auto_configurator``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError

from .built import built_recipe, edited_recipe, is_nemo_installed, is_recipe_object
from .configurator import AutoConfigurator, SearchResults


def generate_configs(runner: AutoConfigurator) -> tuple[Any, dict[str, Any]]:
    """The base configuration, and each candidate's by the name of its run.

    A recipe that is a ``run.Partial`` has candidates that are copies of it. Any other gives
    recipes where NeMo and NeMo-Run are installed, and mappings where they are not.

    Raises:
        ConfigError: the recipe has no place for what a candidate sets.
    """
    base, found = runner.generate_configs()
    if is_recipe_object(runner.recipe) and runner.model is None:
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
