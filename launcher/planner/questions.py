"""``fit`` and ``plan`` for Python: flags as keyword arguments, answers as values.

Not: their text.
"""

from __future__ import annotations

from .answers import FitAnswer, PlanAnswer, fit_answer, plan_answer
from .fit_flags import parse_fit
from .plan_flags import parse_plan


def fit(**flags: object) -> FitAnswer:
    """Whether a training fits, as ``autoconf-launch fit`` says it; no exception where it does not.

    Args:
        flags: of the verb, ``_`` for ``-``: ``fit(model="gpt2-xl", cluster="8xA100", seq=1024,
            global_batch=64)``; True for a flag without a value, False for its ``--no-`` form.

    Raises:
        ConfigError: a flag, a name or a layout is wrong.
    """
    return fit_answer(parse_fit(_arguments(flags)))


def plan(**flags: object) -> PlanAnswer:
    """Every layout of a training, ranked, as ``autoconf-launch plan``; see :func:`fit`.

    ``plan.best`` of the answer is empty where nothing fits.

    Raises:
        ConfigError: a flag or a name is wrong.
    """
    return plan_answer(parse_plan(_arguments(flags)))[1]


def _arguments(flags: dict[str, object]) -> list[str]:
    arguments = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            arguments.append(f"--{flag}={value}")
    return arguments
