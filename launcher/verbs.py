"""The possible first words of the command line, with a line on each."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from .extension_points import load_reference

if TYPE_CHECKING:
    from .asked import VerbQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A row of the table.

    Attributes:
        answers: its question, in a line.
        reference: ``module:function`` from the arguments after the verb to pieces of text.
        question: ``module:class`` of its parameters, in a module without a heavy library.
    """

    answers: str
    reference: str
    question: str


_COMMANDS = "autoconf_launch.launcher.commands"
_ASKED = "autoconf_launch.launcher.asked"
_REQUEST = "autoconf_launch.launcher.request"
_LAUNCH_QUESTION = f"{_REQUEST}:LaunchRequest"
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
            question=f"{_ASKED}:FitCommand",
        ),
        "plan": Verb(
            answers="which layout is best on which cluster, how long, for how much money?",
            reference=f"{_COMMANDS}.plan:plan",
            question=f"{_ASKED}:PlanCommand",
        ),
        "fit --inference": Verb(
            answers="does a model generate text in memory, and how fast?",
            reference=f"{_COMMANDS}.fit:fit_inference",
            question=f"{_ASKED}:FitInferenceCommand",
        ),
        "plan --inference": Verb(
            answers="which tensor and pipeline ranks and batch generate text best?",
            reference=f"{_COMMANDS}.plan:plan_inference",
            question=f"{_ASKED}:PlanInferenceCommand",
        ),
        "recommend": Verb(
            answers="which model size do days and GPUs allow?",
            reference=f"{_COMMANDS}.recommend:recommend",
            question=f"{_ASKED}:RecommendCommand",
        ),
        "search": Verb(
            answers="NVIDIA's searches: which layout trains a model, which writes its text?",
            reference="autoconf_launch.nemo.inference_search.command:search",
            question="autoconf_launch.nemo.search_flags:SearchRequest",
        ),
        "doctor": Verb(
            answers="what can the hosts of a launch do, and which one is slow?",
            reference=f"{_COMMANDS}.doctor:doctor",
            question=f"{_REQUEST}:DoctorCommand",
        ),
        "export": Verb(
            answers="the best configuration in another framework's words",
            reference=f"{_COMMANDS}.export:export",
            question=f"{_ASKED}:ExportCommand",
        ),
        "show": Verb(
            answers="a tune, while it runs and after",
            reference=f"{_COMMANDS}.show:show",
            question=f"{_ASKED}:ShowCommand",
        ),
        "show spaces": Verb(
            answers="what would be searched, knob by knob",
            reference=f"{_COMMANDS}.spaces:show_spaces",
            question=f"{_ASKED}:ShowSpacesCommand",
        ),
        "compare": Verb(
            answers="two tunes side by side",
            reference=f"{_COMMANDS}.show:compare",
            question=f"{_ASKED}:CompareCommand",
        ),
        "validate": Verb(
            answers="how far predictions are from your measurements",
            reference=f"{_COMMANDS}.validate:validate",
            question=f"{_ASKED}:ValidateCommand",
        ),
    }
)
"""Verbs by their words in a command line, one or two."""

_EXAMPLES = """\
examples:
  autoconf-launch tune --num_gpus 2 train.py --batch_size 8
  autoconf-launch plan --model llama3-8b --cluster 8xH100 --seq 8192 --global-batch 64
"""


def question_of_verb(name: str) -> type[VerbQuestion]:
    """The class of a verb's parameters."""
    reference = _LAUNCH_QUESTION if name in LAUNCHING else VERBS[name].question
    kind: type[VerbQuestion] = load_reference(reference)
    return kind


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
        "--schema config|cluster|VERB prints a JSON Schema of a file or of a verb's parameters.\n"
        'Completion: eval "$(autoconf-launch --completion bash)", or zsh; in fish | source.\n'
    )


def nearest_verb(word: str) -> str | None:
    """The verb that a mistyped one is close to; None for a word that looks like a script."""
    if "." in word or "/" in word:
        return None
    close = difflib.get_close_matches(word.lower(), [*LAUNCHING, *VERBS], n=1, cutoff=0.7)
    return close[0] if close else None
