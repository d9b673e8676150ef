"""What can stand first on the command line, with a line on each. Not: what the verbs do."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """``reference`` is ``module:function`` from the arguments after the verb to pieces of text."""

    answers: str
    reference: str


_COMMANDS = "autoconf_launch.launcher.commands"
LAUNCHING = MappingProxyType(
    {
        "tune": "find the fastest configuration of a training by short real runs",
        "run": "the same, then train with it to the end",
    }
)
"""Verbs that launch a script; ``--autotuning=`` says the same."""
VERBS = MappingProxyType(
    {
        "fit": Verb(
            answers="does a model, or a script as it is, fit in memory?",
            reference=f"{_COMMANDS}.fit:fit",
        ),
        "plan": Verb(
            answers="which layout is best on which cluster, how long, for how much money?",
            reference=f"{_COMMANDS}.plan:plan",
        ),
        "recommend": Verb(
            answers="which model size do days and GPUs allow?",
            reference=f"{_COMMANDS}.recommend:recommend",
        ),
        "search": Verb(
            answers="NVIDIA's training search: which layout of a GPT, T5, BERT or Llama?",
            reference="autoconf_launch.nemo.search.command:search",
        ),
        "export": Verb(
            answers="the best configuration in another framework's words",
            reference=f"{_COMMANDS}.export:export",
        ),
        "show": Verb(
            answers="a tune, while it runs and after",
            reference=f"{_COMMANDS}.show:show",
        ),
        "show spaces": Verb(
            answers="what would be searched, knob by knob",
            reference=f"{_COMMANDS}.spaces:show_spaces",
        ),
        "compare": Verb(answers="two tunes side by side", reference=f"{_COMMANDS}.show:compare"),
        "validate": Verb(
            answers="how far predictions are from your measurements",
            reference=f"{_COMMANDS}.validate:validate",
        ),
        "replay": Verb(
            answers="a tuner against recorded measurements",
            reference=f"{_COMMANDS}.replay:replay",
        ),
    }
)
"""One or two words, as they are in a command line."""

_EXAMPLES = """\
examples:
  autoconf-launch tune --num_gpus 2 train.py --batch_size 8
  autoconf-launch run run_clm.py --deepspeed ds_config.json
  autoconf-launch fit --model llama3-8b --cluster 1x8xH100 --seq 8192 --global-batch 64
"""


def overview() -> str:
    """The help of the command as a whole."""
    lines = {**LAUNCHING, **{name: verb.answers for name, verb in VERBS.items()}}
    width = max(map(len, lines))
    table = "".join(f"  {name:{width}}  {answer}\n" for name, answer in lines.items())
    return (
        "usage: autoconf-launch VERB ...\n"
        "       autoconf-launch [flags] train.py [arguments]\n\n"
        "Find the best configuration of a PyTorch training, and launch it. Without a verb the\n"
        "script is launched as deepspeed and torchrun would.\n\n"
        f"verbs:\n{table}\n{_EXAMPLES}\n"
        "Each verb has --help; autoconf-launch tune --help has the flags of a launch.\n"
    )


def nearest_verb(word: str) -> str | None:
    """The verb that a mistyped one is near to; None for what looks like a script."""
    if "." in word or "/" in word:
        return None
    close = difflib.get_close_matches(word.lower(), [*LAUNCHING, *VERBS], n=1, cutoff=0.7)
    return close[0] if close else None
