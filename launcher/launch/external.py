"""What a launch of another's script needs beside its words: the probe, its files. Not: a dialect.

Our own scripts report by themselves; in others a probe does, and only what a probe can find is
compared with what was asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import ConfigError, RankTask

from ..dialects import DATALOADER_BATCH_VARIABLE
from ..plan import LaunchPlan
from ..request import LaunchRequest
from ..results import CONFIG, DS_CONFIG
from ..script import ScriptSource, parser_flags
from ..spelling import Dialect, Rendered, TrialNeeds, declared_as
from .probe_variables import deaf_flag, probe_environment, search_path

_LOCAL_RANK, _OURS = "--local_rank", "autoconf_launch"


def config_stem(dialect: Dialect, source: ScriptSource) -> str:
    """What the file with a trial's configuration is called, without its suffix.

    It is ``ds_config`` where a rank reads it, and ``config`` where it only shows what was set.
    """
    read = not dialect.is_external or source.config_argument is not None
    return DS_CONFIG if read else CONFIG


def as_script_expects(
    request: LaunchRequest, dialect: Dialect, source: ScriptSource
) -> LaunchRequest:
    """An external script gets ``--local_rank`` only where it declares it, or is DeepSpeed's."""
    request = with_declared_local_rank(request, source)
    if dialect.reads_document or parser_flags(source) is not None:
        return request
    if declared_as(source.facts, _LOCAL_RANK) is not None:
        return request
    return replace(request, local_rank_argument=False)


def with_declared_local_rank(request: LaunchRequest, source: ScriptSource) -> LaunchRequest:
    """No ``--local_rank`` where the script's parser would refuse it.

    Where its flags are not known, a script of our runtime that never speaks of it gets none.
    """
    flags = parser_flags(source)
    texts = (source.text, *source.modules)
    if flags is not None:
        refused = _LOCAL_RANK not in flags
    else:
        refused = source.facts.imports(_OURS) and not any("local_rank" in t for t in texts)
    return replace(request, local_rank_argument=False) if refused else request


def in_trial(
    dialect: Dialect,
    rendered: Rendered,
    source: ScriptSource,
    *,
    task: RankTask,
    needs: TrialNeeds,
) -> Rendered:
    """The candidate as a trial is told it; an external script gets the probe, too."""
    trial = dialect.in_trial(rendered, source, needs)
    if not dialect.is_external:
        return trial
    shutil.rmtree(needs.output, ignore_errors=True)  # of an earlier launch of this trial
    probe = probe_environment(task, Path(task.folder))
    return replace(trial, environment=(*trial.environment, *probe))


def in_training(rendered: Rendered) -> Rendered:
    """The winner as a training is told it: our code goes along where it sets the batch."""
    if DATALOADER_BATCH_VARIABLE not in dict(rendered.environment):
        return rendered
    return replace(rendered, environment=(*rendered.environment, search_path()))


def write_files(rendered: Rendered, folder: Path, write: Callable[[Path, str], None]) -> None:
    """Write what stands beside the configuration."""
    for file in rendered.files:
        write(folder / file.name, file.text)


def told(plan: LaunchPlan, rendered: Rendered) -> LaunchPlan:
    """The plan with the variables that were rendered, and what is to be compared.

    Raises:
        ConfigError: the script's Python would not read the probe.
    """
    if rendered.checked is not None and (flag := deaf_flag(plan.ranks[0].argv)):
        raise ConfigError(
            f"The script's Python is started with {flag}, with which it reads neither PYTHONPATH "
            f"nor sitecustomize, so that nothing can be measured in it; start it without {flag}."
        )
    ranks = tuple(
        replace(rank, environment=(*rank.environment, *rendered.environment))
        for rank in plan.ranks
    )
    return replace(plan, ranks=ranks, checked=rendered.checked)
