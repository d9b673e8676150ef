"""The launcher's own flags to a LaunchRequest, and a request back to flags.

``-`` and ``_`` are equal in flag names; every key of the autotuning section is a flag, too.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from autoconf_launch.autotuner.space import AutotuningSettings
from autoconf_launch.core import ConfigError

from ..input_file import is_file
from ..request import (
    KUBERNETES,
    CoreBinding,
    HostChoice,
    LaunchRequest,
    RemoteAccess,
    Rendezvous,
    TrackingChoice,
    UserWords,
)
from .flag_table import REFUSED, WITHOUT_EFFECT, make_parser, tuning_flags
from .verb_parser import unknown_flag


def parse_request(argv: Sequence[str]) -> LaunchRequest:
    """Read a command line.

    Raises:
        ConfigError: an unknown flag, a wrong value, flags that exclude each other, no script.
    """
    parser = make_parser()
    own, rest = _split(parser, list(argv))
    _require_one_verb(own)
    flags = parser.parse_args(own)
    if not rest:
        raise _no_script(flags.autotuning)
    _check(flags)
    return LaunchRequest(
        script=rest[0],
        script_args=tuple(rest[1:]),
        kind="module" if flags.module else "program" if flags.no_python else "script",
        processes=flags.num_gpus,
        hosts=_hosts(flags),
        remote=_remote(flags),
        rendezvous=_rendezvous(flags),
        binding=_binding(flags),
        local_rank_flag="" if flags.no_local_rank else None,
        # "None" is DeepSpeed's way to write that there is no folder
        rank_log_folder=None if flags.rank_log_folder == "None" else flags.rank_log_folder,
        save_pid=flags.save_pid,
        autotuning=flags.autotuning,
        fresh=flags.fresh,
        trust_results=flags.trust_results,
        dry_run=flags.dry_run,
        history=not flags.no_history,
        words=UserWords(
            dialect=flags.dialect,
            arguments=tuple(flags.arg or ()),
            knobs=tuple(flags.knob or ()),
            overrides=_overrides(flags),
            allow_global_batch_change=flags.allow_global_batch_change,
            keep_global_batch=flags.keep_global_batch,
        ),
        cluster=flags.cluster,
        tuning_space=flags.tuning_space,
        memory_limit_bytes=flags.memory_limit,
        max_parallel_trials=flags.max_parallel_trials,
        trial_timeout_s=flags.trial_timeout,
        stall_timeout_s=flags.stall_timeout,
        soak_steps=flags.soak_steps,
        budget=flags.budget,
        good_enough=flags.good_enough,
        tracking=TrackingChoice(
            trackers=flags.report_to,
            project=flags.tracker_project,
            wandb_key_file=flags.wandb_api_key_file,
        ),
        quiet=flags.quiet,
        log_level="error" if flags.quiet else flags.log_level or "info",
        notes=_notes(flags),
        argv=tuple(argv),
    )


def _no_script(verb: str | None) -> ConfigError:
    words = " ".join(filter(None, ("autoconf-launch", verb, "[flags] script.py [its arguments]")))
    return ConfigError(f"No script was given; use: {words}.")


def require_use(request: LaunchRequest) -> None:
    """Refuse flags of a tune; for a launch without one.

    Raises:
        ConfigError: there is such a flag.
    """
    parser = make_parser()
    own, _ = _split(parser, list(request.argv))
    unused = tuning_flags(parser)
    for name in (word.partition("=")[0] for word in own):
        prints = name == "--dry_run" and request.remote.engine == KUBERNETES
        if name in unused and not prints:
            raise ConfigError(
                f"{name} is for a tune, but this launches the script as it is; write "
                f"autoconf-launch tune {name} …, or omit it."
            )


def _check(flags: argparse.Namespace) -> None:
    for first, second in _EXCLUSIVE:
        if _is_given(flags, first) and _is_given(flags, second):
            raise ConfigError(
                f"--{first} and --{second} cannot be given together; give one of them."
            )
    if flags.standalone and (flags.num_nodes or 1) > 1:
        raise ConfigError(
            f"--standalone is this machine alone, but --num_nodes is {flags.num_nodes}; "
            "omit one of them."
        )
    if flags.redirects and not _is_given(flags, "rank_log_folder"):
        raise ConfigError("--redirects needs a folder for the files; give it with --log_dir DIR.")
    if flags.tracker_project and not flags.report_to:
        raise ConfigError("--tracker_project names a tracker's project; give --report_to too.")
    if flags.wandb_api_key_file and "wandb" not in flags.report_to:
        raise ConfigError("--wandb_api_key_file is for W&B; give --report_to wandb too.")


_EXCLUSIVE = (
    ("module", "no_python"),
    ("include", "exclude"),
    ("quiet", "log_level"),
    ("allow_global_batch_change", "keep_global_batch"),
    ("max_train_batch_size", "keep_global_batch"),
    *((flag, which) for which in ("include", "exclude") for flag in ("num_nodes", "num_gpus")),
    *(("standalone", other) for other in ("hostfile", "master_addr", "master_port", "node_rank")),
    *(("rdzv_endpoint", other) for other in ("standalone", "master_addr", "master_port")),
)


def _is_given(flags: argparse.Namespace, name: str) -> bool:
    return getattr(flags, name) not in (None, False, "")


def _hosts(flags: argparse.Namespace) -> HostChoice:
    return HostChoice(
        hostfile=flags.hostfile,
        include=flags.include,
        exclude=flags.exclude,
        nodes=flags.num_nodes,
        node_rank=flags.node_rank,
        by_hand=flags.no_ssh,
        standalone=flags.standalone,
        force_multi=flags.force_multi,
    )


def _remote(flags: argparse.Namespace) -> RemoteAccess:
    return RemoteAccess(
        engine=flags.launcher or RemoteAccess().engine,
        arguments=tuple(_words_of(flags.launcher_args or "", "--launcher_args")),
        port=flags.ssh_port,
        venv_script=flags.venv_script,
    )


def _words_of(text: str, flag: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{flag} is {text!r}, which no shell could read: {error}.") from None


def request_of_hosts(flags: argparse.Namespace, module: str) -> LaunchRequest:
    """A launch of a module of ours on the hosts and slots that the flags say.

    Raises:
        ConfigError: the words for the launcher's program cannot be read.
    """
    return LaunchRequest(
        script=module,
        kind="module",
        processes=flags.num_gpus,
        hosts=_hosts(flags),
        remote=_remote(flags),
        local_rank_flag="",
    )


def _rendezvous(flags: argparse.Namespace) -> Rendezvous:
    address, port = flags.rdzv_endpoint or (flags.master_addr, flags.master_port)
    return Rendezvous(address=address or None, port=port, run_id=flags.rdzv_id)


def _binding(flags: argparse.Namespace) -> CoreBinding | None:
    if flags.bind_core_list is not None:
        from ..machine import parse_core_list  # with numpy, unlike --help

        return CoreBinding(cores=parse_core_list(flags.bind_core_list))
    return CoreBinding() if flags.bind_cores_to_rank else None


def _overrides(flags: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    given = ((name, getattr(flags, name, None)) for name in AutotuningSettings.model_fields)
    return tuple((name, value) for name, value in given if value is not None)


def _notes(flags: argparse.Namespace) -> tuple[str, ...]:
    return tuple(
        f"--{name} has no effect: {reason}."
        for name, reason in WITHOUT_EFFECT.items()
        if _is_given(flags, name)
    )


def own_flag(word: str) -> str | None:
    """Our flag that this word is, as we write it; None where it is none."""
    name = word.partition("=")[0]
    flag = _normalise(name)
    return flag if flag in make_parser()._option_string_actions else None


def is_for_tune(word: str) -> bool:
    """Whether our flag that this word is needs a tune."""
    return own_flag(word) in tuning_flags(make_parser())


def _normalise(name: str) -> str:
    return name.replace("-", "_").replace("__", "--", 1) if name.startswith("--") else name


def _require_one_verb(own: Sequence[str]) -> None:
    """Raise if the flag for it names another verb than the word in front."""
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
    """Whether the word after an unknown flag is its value, and not the script."""
    if word is None or word.startswith("-"):
        return False
    return not (word.endswith(".py") or is_file(word))


def _takes_value(action: argparse.Action, following: str | None) -> bool:
    if action.nargs == "?":
        return following in ("true", "false")
    return action.nargs != 0


def launch_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Flags that start the same ranks without tuning; ``python`` itself means one rank."""
    binding = request.binding
    other = request.python if request.kind != "program" else None
    placed = bool(request.prefix or request.python_flags) and request.kind != "program"
    from ..machine import our_python  # with numpy, unlike --help

    named = request.alone or other is not None or placed
    cores = ",".join(map(str, binding.cores)) if binding and binding.cores else None
    return (
        *_flag_with_value("--num_gpus", request.processes),
        *_host_flags(request.hosts),
        *_remote_flags(request.remote),
        *_rendezvous_flags(request.rendezvous),
        *_switch("--module", request.kind == "module" and not named),
        *_switch("--no_python", request.kind == "program" or (named and not request.alone)),
        *_switch("--no_local_rank", request.local_rank_flag == "" and not request.alone),
        *_switch("--bind_cores_to_rank", binding is not None),
        *_flag_with_value("--bind_core_list", cores),
        *_flag_with_value("--enable_each_rank_log", request.rank_log_folder),
        *_switch("--save_pid", request.save_pid),
        *_switch("--", request.alone),
        *request.prefix,
        *((other or our_python(), *request.python_flags) if named else ()),
        *_switch("-m", named and request.kind == "module"),
    )


def typed_flags(request: LaunchRequest) -> tuple[str, ...]:
    """What the user typed before the script, without what :func:`launch_flags` says anyway."""
    parser = make_parser()
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


_OF_A_START = ("autotuning", "module", "no_python", "no_local_rank")
"""Flags that a verb or another way to start the script replaces."""


def _host_flags(hosts: HostChoice) -> tuple[str, ...]:
    return (
        *_flag_with_value("--num_nodes", hosts.nodes),
        *_flag_with_value("--hostfile", hosts.hostfile),
        *_flag_with_value("--include", hosts.include or None),
        *_flag_with_value("--exclude", hosts.exclude or None),
        *_flag_with_value("--node_rank", hosts.node_rank),
        *_switch("--no_ssh", hosts.by_hand),
        *_switch("--standalone", hosts.standalone),
        *_switch("--force_multi", hosts.force_multi),
    )


def _remote_flags(remote: RemoteAccess) -> tuple[str, ...]:
    engine = remote.engine if remote.engine != RemoteAccess().engine else None
    return (
        *_flag_with_value("--launcher", engine),
        *_flag_with_value("--launcher_args", shlex.join(remote.arguments) or None),
        *_flag_with_value("--ssh_port", remote.port),
        *_flag_with_value("--venv_script", remote.venv_script),
    )


def _rendezvous_flags(rendezvous: Rendezvous) -> tuple[str, ...]:
    return (
        *_flag_with_value("--master_addr", rendezvous.address),
        *_flag_with_value("--master_port", rendezvous.port),
        *_flag_with_value("--rdzv_id", rendezvous.run_id),
    )


def _flag_with_value(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))


def _switch(flag: str, wanted: bool) -> tuple[str, ...]:
    return (flag,) if wanted else ()
