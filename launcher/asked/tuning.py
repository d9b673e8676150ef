"""``tune``: the limits of a search, the allowed changes, the knobs, and the trials."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

from autoconf_launch.autotuner.space import (
    ALIASES,
    AutotuningSettings,
    EffortName,
    SearchBudget,
    setting_fault,
)
from autoconf_launch.core import KnobValue

from .launch_units import BUDGET, COUNT, GAIN, KEY_FLAG, KNOB, PROCESSES, Processes
from .parameters import VerbQuestion, parameter, question
from .units import (
    BYTES,
    NAME,
    OFF,
    ON,
    SECONDS,
    ValueUnit,
    accept,
    at_least,
    choice,
    mapping_of,
    refuse_other_than_path,
    refuse_other_than_text,
)

HOSTS, RESULTS, SCRIPT, TUNING, TRIALS = (
    "hosts and slots",
    "results",
    "script",
    "tuning",
    "trials",
)
_MEANING, _SPACE = "what may change", "what is searched"
OF_A_TUNE = (TUNING, _MEANING, _SPACE, TRIALS, RESULTS)
"""Groups of flags that a launch without a tune has no use for."""
_GROUP_OF_SETTING = {
    "metric": TUNING,
    "max_train_batch_size": _MEANING,
    **dict.fromkeys(("start_profile_step", "end_profile_step"), TRIALS),
    **dict.fromkeys(("results_dir", "exps_dir", "overwrite"), RESULTS),
}
_OTHER_SETTINGS: Mapping[str, type] = {
    "enabled": bool,
    "effort": str,
    **dict.fromkeys(("arg_mappings", *ALIASES), object),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKnob:
    """A knob that the user gave with its values: ``--knob '--num_workers=[0,2,4]'``."""

    name: str
    values: tuple[KnobValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWords:
    """The user's words on the script and its settings.

    Attributes:
        dialect: name of the dialect; None: the first that fits.
        arguments: canonical key and the script's argument for it.
        knobs: additional knobs with values.
        overrides: keys of the autotuning section.
        allow_global_batch_change: candidates may have another global batch than the user's.
        keep_global_batch: no candidate has another one.
    """

    dialect: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    knobs: tuple[OwnKnob, ...] = ()
    overrides: tuple[tuple[str, Any], ...] = ()
    allow_global_batch_change: bool = False
    keep_global_batch: bool = False


def _read_tuner(text: str) -> str:
    from autoconf_launch.autotuner.strategies import strategy_hint  # --help does not wait for it

    if hint := strategy_hint(text.strip()):
        raise ArgumentTypeError(f"{text!r} is not a tuner; {hint}")
    return text


def _setting(name: str) -> tuple[ValueUnit, str, str]:
    """Unit, line and group of a key of the autotuning section, with the words of its schema."""
    declared = AutotuningSettings.model_fields[name]
    inner = [one for part in get_args(declared.annotation) for one in get_args(part) or (part,)]
    known = tuple(one for one in inner if isinstance(one, str))

    def read(text: str) -> str:
        if why := setting_fault(name, text):
            raise ArgumentTypeError(f"{text!r}: {why}".replace(": it ", " ", 1))
        return text

    unit = ValueUnit(metavar="VALUE", read=read, refuse=accept)
    if known:
        unit = replace(choice(name, known, "|".join(known)), refuse=accept)
    if declared.annotation is bool:
        unit = replace(unit, metavar="true|false", const="true", known=("true", "false"))
    if name == "tuner_type":
        unit = replace(unit, read=_read_tuner)
    return unit, declared.description or "", _GROUP_OF_SETTING.get(name, _SPACE)


_EFFORT, _EFFORT_ABOUT, _ = _setting("effort")
_EFFORT = replace(_EFFORT, refuse=refuse_other_than_text)
_SETTINGS = {
    name: _setting(name)
    for name in AutotuningSettings.model_fields
    if name not in ("enabled", "arg_mappings", "effort")
}


@question
class RankCount(VerbQuestion):
    """Number of ranks to start."""

    processes: Processes | None = parameter(
        HOSTS,
        "ranks on each host; gpu, cpu, auto",
        PROCESSES,
        default=None,
        flag="--num_gpus --num_accelerators --nproc_per_node",
    )


@question
class TuneQuestion(RankCount):
    """A tune: its limits, the allowed changes, the knobs, and the trials."""

    budget: SearchBudget | str | None = parameter(
        TUNING,
        "limit of the command, its profile run included: 20m, 30trials (that of your own "
        "configuration included), $15, or several separated by commas",
        BUDGET,
        default=None,
    )
    cluster: str | None = parameter(
        TUNING,
        "whose network joins the hosts, for predictions: a file of doctor --save",
        ValueUnit(metavar="CLUSTER"),
        default=None,
    )
    good_enough: float | None = parameter(
        TUNING,
        "stop when nothing left could gain more (2% at normal effort); 0: never",
        GAIN,
        default=None,
        flag="_",
    )
    effort: EffortName | None = parameter(TUNING, _EFFORT_ABOUT, _EFFORT, default=None)
    allow_global_batch_change: bool = parameter(
        _MEANING,
        "candidates may have another global batch than yours",
        ON,
        default=False,
        flag="_",
    )
    keep_global_batch: bool = parameter(
        _MEANING,
        "pin today's global batch where a DeepSpeed file states none",
        ON,
        default=False,
        flag="_",
    )
    knobs: Sequence[tuple[str, Sequence[KnobValue]]] = parameter(
        _SPACE,
        "an argument of the script to search: '--num_workers=[0,2,4]'",
        KNOB,
        default=(),
        flag="--knob",
    )
    tuning_space: str | None = parameter(
        _SPACE,
        "knobs to search, instead of the shipped ones",
        ValueUnit(metavar="FILE", refuse=refuse_other_than_path),
        default=None,
        flag="_",
    )
    memory_limit_bytes: int | None = parameter(
        TRIALS,
        "of each rank, such as 20GB; on a GPU with the CUDA context, emulated on CPU",
        BYTES,
        default=None,
        flag="--memory_limit",
    )
    max_parallel_trials: int | None = parameter(
        TRIALS,
        "trials side by side (default: as many as GPUs and other hosts allow; 1 on one CPU, "
        "whose memory they share, and 1 job in a queue)",
        COUNT,
        default=None,
        flag="_",
    )
    trial_timeout_s: float = parameter(
        TRIALS,
        "longest duration of a trial (default: 600 s)",
        SECONDS,
        default=600.0,
        flag="--trial_timeout",
    )
    stall_timeout_s: float = parameter(
        TRIALS,
        "longest time without a step (default: 120 s)",
        SECONDS,
        default=120.0,
        flag="--stall_timeout",
    )
    soak_steps: int | None = parameter(
        TRIALS,
        "steps of the winner's verification run (default: 50, fewer if slow); 0: no run",
        at_least(0),
        default=None,
        flag="_",
    )
    settings: Mapping[str, Any] | None = parameter(
        _SPACE,
        "keys of the configuration's section autotuning, such as metric",
        mapping_of(_SETTINGS, _OTHER_SETTINGS),
        default=None,
        flag="_",
        parts=_SETTINGS,
    )
    fresh: bool = parameter(RESULTS, "move old results aside", ON, default=False)
    trust_results: bool = parameter(
        RESULTS,
        "use a results folder that other users own or can write",
        ON,
        default=False,
        flag="_",
    )
    history: bool = parameter(
        RESULTS,
        "neither read nor write step times of earlier tunes",
        OFF,
        default=True,
        flag="--no_history",
    )
    dialect: str | None = parameter(
        SCRIPT, "the script's framework; default: the one that fits", NAME, default=None
    )
    arg: Sequence[tuple[str, str]] = parameter(
        SCRIPT, "the script's FLAG sets KEY", KEY_FLAG, default=()
    )
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = (
        ("--allow_global_batch_change", "--keep_global_batch"),
        ("--max_train_batch_size", "--keep_global_batch"),
    )

    @property
    def verifies(self) -> bool:
        return self.soak_steps != 0

    @property
    def limits(self) -> SearchBudget:
        read = BUDGET.read(self.budget) if isinstance(self.budget, str) else self.budget
        return read or SearchBudget()

    @property
    def words(self) -> UserWords:
        effort = {} if self.effort is None else {"effort": self.effort}
        return UserWords(
            dialect=self.dialect,
            arguments=tuple(self.arg),
            knobs=tuple(OwnKnob(name=name, values=tuple(values)) for name, values in self.knobs),
            overrides=tuple({**effort, **(self.settings or {})}.items()),
            allow_global_batch_change=self.allow_global_batch_change,
            keep_global_batch=self.keep_global_batch,
        )
