"""The launcher's own flags to a LaunchRequest, and a request back to flags.

``-`` and ``_`` are equal in flag names; every key of the autotuning section is a flag, too.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autoconf_launch.core import ConfigError

from .asked import (
    OF_A_TUNE,
    asked_parameters,
    build_question,
    engine_facts,
    flag_words,
    unknown_flag,
)
from .input_file import is_file
from .machine import our_python
from .request import (
    OF_ANY_LAUNCH,
    OF_ANY_START,
    WITHOUT_EFFECT,
    LaunchRequest,
    Rendezvous,
)

_ELASTIC = "a launch has a fixed number of hosts and ranks; give --num_nodes and --num_gpus"
_STREAMS = "a rank's output goes to the screen, or all of it to a file with --log_dir DIR"
_AGENT = "it belongs to torch's elastic agent, which is not used here; omit it"

REFUSED = {
    "--min_elastic_nodes": _ELASTIC,
    "--max_elastic_nodes": _ELASTIC,
    "--elastic_training": _ELASTIC,
    "--tee": _STREAMS,
    "-t": _STREAMS,
    "--local_ranks_filter": _STREAMS,
    "--duplicate_stdout_filters": _STREAMS,
    "--duplicate_stderr_filters": _STREAMS,
    "--rdzv_conf": _AGENT,
    "--role": _AGENT,
    "--event_log_handler": _AGENT,
    "--logs_specs": _AGENT,
    "--local_addr": _AGENT,
    "--shutdown_timeout": _AGENT,
    "--run_path": "each rank is a process of its own; give the script without it",
    "--numa_binding": "use --bind_cores_to_rank or --bind_core_list",
    "--signals_to_handle": "SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to every rank",
    "--type": "FASOP's trainings are presets; write autoconf-launch plan --preset fasop/bert",
    "--heterogeneous": "FASOP's mixed clusters are presets with -heterogeneous at their end",
    "--pareto": "FASOP's sweep is autoconf-launch plan --preset fasop/gpt2XL-pareto",
    "--virtual_local_rank": "LOCAL_RANK counts the devices of CUDA_VISIBLE_DEVICES",
}
"""Why a flag is not offered, and its replacement."""
_OF_A_START = ("autotuning", "is_module", "is_program", "local_rank_flag")
"""Flags that a verb or another way to start the script replaces."""


def parse_request(argv: Sequence[str]) -> LaunchRequest:
    """Read a command line.

    Raises:
        ConfigError: an unknown flag, a wrong value, flags that exclude each other, no script.
    """
    parser = LaunchRequest.parser()
    own, rest = _split(parser, list(argv))
    _require_one_verb(own)
    flags = parser.parse_args(own)
    if not rest:
        raise _no_script(flags.autotuning)
    asked = build_question(LaunchRequest, flags, script=rest[0], script_args=tuple(rest[1:]))
    for wrong in asked.contradictions():
        raise ConfigError(f"{wrong}.")
    return replace(
        asked,
        is_module=False,
        is_program=False,
        kind="module" if asked.is_module else "program" if asked.is_program else "script",
        rendezvous=_meeting(asked.rendezvous),
        # "None" is DeepSpeed's way to write that there is no folder
        rank_log_folder=None if asked.rank_log_folder == "None" else asked.rank_log_folder,
        log_level="error" if asked.quiet else asked.log_level,
        notes=tuple(
            f"--{name} has no effect: {WITHOUT_EFFECT[name][1]}." for name in asked.ignored or ()
        ),
        argv=tuple(argv),
    )


def _meeting(asked: Rendezvous) -> Rendezvous:
    """The meeting point, with torchrun's endpoint as address and port."""
    address, port = asked.endpoint or (asked.address, asked.port)
    return Rendezvous(address=address or None, port=port, run_id=asked.run_id)


def _no_script(verb: str | None) -> ConfigError:
    words = " ".join(filter(None, ("autoconf-launch", verb, "[flags] script.py [its arguments]")))
    return ConfigError(f"No script was given; use: {words}.")


def require_use(request: LaunchRequest) -> None:
    """Refuse flags of a tune in a launch without one.

    Raises:
        ConfigError: there is such a flag.
    """
    own, _ = _split(LaunchRequest.parser(), list(request.argv))
    for name in (word.partition("=")[0] for word in own):
        prints = name == "--dry_run" and engine_facts(request.remote.engine).prints_launches
        if _needs_tune(name) and not prints:
            raise ConfigError(
                f"{name} is for a tune, but this launches the script as it is; write "
                f"autoconf-launch tune {name} …, or omit it."
            )


def _needs_tune(flag: str) -> bool:
    parts = (part for one in asked_parameters(LaunchRequest) for part in one.parts)
    group = next((part.asked.group for part in parts if flag in part.flags), None)
    return group in OF_A_TUNE and flag not in OF_ANY_LAUNCH


def own_flag(word: str) -> str | None:
    """Our flag for this word, as we write it; None if it is none."""
    name = word.partition("=")[0]
    flag = _normalise(name)
    return flag if flag in LaunchRequest.parser()._option_string_actions else None


def is_for_tune(word: str) -> bool:
    """True if our flag for this word needs a tune."""
    return _needs_tune(own_flag(word) or "")


def _normalise(name: str) -> str:
    return name.replace("-", "_").replace("__", "--", 1) if name.startswith("--") else name


def _require_one_verb(own: Sequence[str]) -> None:
    verbs = [word.partition("=")[2] for word in own if word.startswith("--autotuning=")]
    if len({*verbs}) > 1:
        raise ConfigError(
            f"--autotuning {verbs[-1]} is given beside {verbs[0]}; tune and run are the verbs: "
            "write one of them in front, and omit the flag."
        )


def _split(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """Our flags, normalised, and the script with everything after it."""
    actions: dict[str, Any] = parser._option_string_actions
    own: list[str] = []
    problems: list[str] = []
    index = 0
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "--":
        name, equals, value = argv[index].partition("=")
        flag = _normalise(name)
        following = next(iter(argv[index + 1 : index + 2]), None)
        if flag in REFUSED or flag not in actions:
            unknown = unknown_flag(name, actions, "autoconf-launch tune --help")
            refused = f"{name} is not offered: {REFUSED.get(flag)}."
            problems.append(refused if flag in REFUSED else str(unknown))
            index += 1 + (not equals and _is_value(following))
            continue
        spaced = not equals and _takes_value(actions[flag], following)
        given = value if equals else following if spaced else ""
        if given is None or given == "--":  # argparse would drop this value
            raise ConfigError(f"{name} needs a value.")
        if flag == "--autotuning" and given not in (modes := actions[flag].choices):
            problems.append(
                f"{name} is {given!r}, but must be {' or '.join(modes)}; write autoconf-launch "
                f"{shlex.join((modes[0], *argv[:index], *argv[index + 1 :]))}."
            )
            break
        own.append(f"{flag}={given}" if equals or spaced else flag)
        index += 1 + spaced
    if problems:
        try:
            parser.parse_args(own)
        except ConfigError as error:
            problems.append(str(error))
        raise ConfigError(" ".join(problems))
    return own, argv[index + (index < len(argv) and argv[index] == "--") :]


def _is_value(word: str | None) -> bool:
    """True if the word after an unknown flag is its value, and not the script."""
    if word is None or word.startswith("-"):
        return False
    return not (word.endswith(".py") or is_file(word))


def _takes_value(action: argparse.Action, following: str | None) -> bool:
    if action.nargs == "?":
        return following in ("true", "false")
    return action.nargs != 0


def launch_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Flags that start the same ranks without tuning; ``python`` itself means one rank."""
    other = request.python if request.kind != "program" else None
    placed = bool(request.prefix or request.python_flags) and request.kind != "program"
    named = request.alone or other is not None or placed
    flags = list(flag_words(request, OF_ANY_START))
    return (
        *flags,
        *_switch("--module", request.kind == "module" and not named),
        *_switch("--no_python", request.kind == "program" or (named and not request.alone)),
        *_switch("--no_local_rank", request.local_rank_flag == "" and not request.alone),
        *_switch("--", request.alone),
        *request.prefix,
        *((other or our_python(), *request.python_flags) if named else ()),
        *_switch("-m", named and request.kind == "module"),
    )


def typed_flags(request: LaunchRequest) -> tuple[str, ...]:
    """The words that the user typed before the script, without :func:`launch_flags`."""
    parser = LaunchRequest.parser()
    actions: dict[str, Any] = parser._option_string_actions
    own, _ = _split(parser, list(request.argv))
    said = {actions[word].dest for word in launch_flags(request) if word in actions}
    found: list[str] = []
    index = 0
    for word in own:
        name, equals, _ = word.partition("=")
        end = index + 1 + (bool(equals) and "=" not in request.argv[index])
        if actions[name].dest not in {*said, *_OF_A_START}:
            found += request.argv[index:end]
        index = end
    return tuple(found)


def _switch(flag: str, wanted: bool) -> tuple[str, ...]:
    return (flag,) if wanted else ()
