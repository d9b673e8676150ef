"""A command after ``--`` or a launch as one process, and a request filled in from its script."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.cost import (
    TrainerChoice,
)
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    TASK_VARIABLE,
    ConfigError,
    Framework,
    Offload,
    Optimizer,
    Recompute,
    Software,
    States,
)
from autoconf_launch.tuning_spaces import trainer

from ..dialects import choose_dialect
from ..estimates import BY_SCRIPT, FitRequest, PlanRequest, TrainingRequest
from ..events import Event, Note
from ..flags import parse_request
from ..launch import read_script, unwrap_launcher
from ..machine import deaf_flag, free_port
from ..plan import LaunchPlan
from ..request import LaunchRequest
from ..results import terminal_text
from ..script import ScriptSource
from .answers import traced_factor
from .script import ScriptCommand, TracedScript, trace_script

_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "autoconf-launch")
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
_DIVIDER = "--"
_SCRIPT = re.compile(r"[^-].*\.py")
_STAGES = {"FullyShardedDataParallel": 3}
_ARCHITECTURE_ALONE = (
    *("--seq", "--tp", "--pp", "--vpp", "--cp", "--ep", "--sequence-parallel", "--offload"),
    *("--recompute-layers", "--lora-rank", "--weights", "--freeze", "--compile"),
    *("--flash-attention", "--trainer", "--tokens", "--objective", "--gpus-needed"),
    *("--states", "--gradients", "--update-in-backward", "--loss"),
)


def split_command(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """A verb's own arguments, and the command after ``--``; None without a command.

    Raises:
        ConfigError: a script is among the arguments.
    """
    words = list(arguments)
    if _DIVIDER not in words:
        if script := next((word for word in words if _SCRIPT.fullmatch(word)), None):
            raise ConfigError(
                f"The script {script} must follow --, after the flags; write "
                f"-- python {script} and its arguments."
            )
        return words, None
    place = words.index(_DIVIDER)
    return words[:place], tuple(words[place + 1 :])


def script_command(words: Sequence[str]) -> ScriptCommand:
    """The process to start: a launcher of ranks is removed, and a single rank is left.

    Raises:
        ConfigError: there is no command, no such file, or its Python would not read the probe.
    """
    if not words:
        raise ConfigError("Nothing follows --; give the command, such as -- python train.py.")
    if words[0].endswith(".py"):
        words = (sys.executable, *words)
    program = _program(words[0])
    if _is_launcher(words):
        return _one_rank(program, words)
    if _PYTHON.fullmatch(Path(words[0]).name):
        _check_script(words)
    if flag := deaf_flag(words):
        raise ConfigError(
            f"{words[0]} is started with {flag}, so it reads neither PYTHONPATH nor "
            f"sitecustomize and cannot be inspected; start it without {flag}."
        )
    return ScriptCommand(name=_name(words), argv=(program, *words[1:]))


def script_source(words: Sequence[str]) -> ScriptSource:
    """Facts of the script that a command starts, read without running it.

    Raises:
        ConfigError: the command is wrong, or starts no script.
    """
    _, source = read_script(parse_request(list(words)))
    return source


def _program(word: str) -> str:
    found = shutil.which(word)
    if found is None:
        raise ConfigError(
            f"{word} cannot be run as a command; give one after --, such as -- python train.py."
        )
    return found


def _is_launcher(words: Sequence[str]) -> bool:
    if Path(words[0]).name in _LAUNCHERS:
        return True
    inside = _PYTHON.fullmatch(Path(words[0]).name) and list(words[1:2]) == ["-m"]
    return bool(inside and words[2:3] and words[2] in _LAUNCHER_MODULES)


def _one_rank(program: str, words: Sequence[str]) -> ScriptCommand:
    ours = Path(words[0]).name == "autoconf-launch"
    request = parse_request(words[1:]) if ours else unwrap_launcher(parse_request(list(words)))
    python = _python_beside(program)
    module = ("-m",) if request.kind == "module" else ()
    start = () if request.kind == "program" else (python, *module)
    if request.kind == "script":
        _check_script((python, request.script))
    return ScriptCommand(
        name=_name((request.script,)),
        argv=(*start, request.script, *_local_rank(words, request), *request.script_args),
        environment=tuple({**dict(request.variables), **_variables_of_one_rank()}.items()),
    )


def command_of_plan(plan: LaunchPlan) -> ScriptCommand:
    """The first rank of a launch as the only rank of its world, without its task."""
    rank = plan.ranks[0]
    variables = dict(rank.environment)
    if "RANK" in variables:
        variables |= _variables_of_one_rank()
    variables.pop(TASK_VARIABLE, None)
    return ScriptCommand(
        name=_name(rank.argv), argv=rank.argv, environment=tuple(variables.items())
    )


def _variables_of_one_rank() -> dict[str, str]:
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def _local_rank(words: Sequence[str], request: LaunchRequest) -> tuple[str, ...]:
    given = Path(words[0]).name == "deepspeed" and request.local_rank_flag
    return (f"{given}=0",) if given else ()


def _python_beside(program: str) -> str:
    """The Python of the environment that a launcher is installed in."""
    if _PYTHON.fullmatch(Path(program).name):
        return program
    beside = Path(program).parent / "python"
    return str(beside) if beside.exists() else sys.executable


def _check_script(words: Sequence[str]) -> None:
    script = next((word for word in words[1:] if not word.startswith("-")), None)
    if script is None or "-m" in words[1:] or "-c" in words[1:]:
        return
    if script.endswith(".py") and not Path(script).is_file():
        raise ConfigError(f"Script {script} does not exist in {Path.cwd()}; give its path.")


def _name(words: Sequence[str]) -> str:
    script = next((word for word in words if word.endswith(".py")), words[-1])
    return Path(script).name


def ask_fit(asked: FitRequest, words: Sequence[str]) -> tuple[FitRequest, TracedScript]:
    """Run the script up to its first forward pass, and fill in values that no flag gave.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    script = trace_script(script_command(words), asked.training.time_limit_s, _write_note)
    request = _fit_of(asked, script, _accumulation(words, script, asked.training))
    if script.architecture is None:
        check_pieces(request.training, script, request)
    return request, script


def ask_plan(asked: PlanRequest, words: Sequence[str]) -> tuple[PlanRequest, TracedScript]:
    """Run the script up to its first forward pass, for ``plan``.

    Raises:
        ConfigError: a flag or the command is wrong.
        NothingFeasibleError: the script does not come to a forward pass.
    """
    script = trace_script(script_command(words), asked.training.time_limit_s, _write_note)
    once = script.found.micro_batch * _accumulation(words, script, asked.training)
    batch = once * len(asked.training.cluster.devices)
    request = replace(asked, training=_training_of(asked.training, script, batch))
    if script.architecture is None:
        check_pieces(request.training, script, None)
        if request.others:
            raise ConfigError(
                "Several clusters are compared for a model whose architecture is known, but "
                f"{script.why_pieces}; give one --cluster."
            )
    return request, script


def _write_note(event: Event) -> None:
    """Show a note on our errors, as our output is the answer."""
    if isinstance(event, Note):
        sys.stderr.write(f"{terminal_text(event.text)}\n")
        sys.stderr.flush()


def _accumulation(words: Sequence[str], script: TracedScript, asked: TrainingRequest) -> int:
    try:
        source = script_source(words)
        ranks = len(asked.cluster.devices)
        user = choose_dialect(source).dialect.read(source, world_size=ranks)
    except ConfigError:
        return 1
    layout = user.baseline.layout
    return layout.accumulation if layout.micro_batch == script.found.micro_batch else 1


def _fit_of(asked: FitRequest, script: TracedScript, accumulation: int) -> FitRequest:
    """Layers to recompute are in full, whatever the script does."""
    given, found, layout = asked.training.given, script.found, asked.layout
    keeps_recompute = given & {"--recompute", "--recompute-layers"}
    size = layout.micro_batch if "--micro-batch" in given else found.micro_batch
    tensor, pipeline, context, _ = layout.mesh
    replicas = len(asked.training.cluster.devices) // (tensor * pipeline * context)
    batch = size * accumulation * max(1, replicas)
    layout = replace(
        layout,
        zero_stage=layout.zero_stage if "--zero" in given else _STAGES.get(found.wrapper or "", 0),
        micro_batch=size,
        recompute=layout.recompute if keeps_recompute else found.recompute,
    )
    training = _training_of(asked.training, script, batch)
    return replace(asked, training=training, layout=layout, is_zero_open=False)


def _states(script: TracedScript, software: Software) -> States | None:
    """Formats of a torch trainer's states by the script's weights; else the trainer's."""
    if software.framework is not Framework.FSDP:
        return software.states
    return States.BF16 if script.found.model.parameter_bytes_each == 2 else States.FP32


def _training_of(asked: TrainingRequest, script: TracedScript, batch: int) -> TrainingRequest:
    given, found, own = asked.given, script.found, asked.workload
    length = found.model.sequence_length or 1
    choice = asked.trainer if "--trainer" in given else _trainer_of(script)
    software = trainer(choice.name).software
    if "--flash-attention" in given or "--no-flash-attention" in given:
        software = replace(software, flash_attention=own.software.flash_attention)
    workload = replace(
        own,
        model=script.architecture or own.model,
        sequence_length=own.sequence_length if "--seq" in given else length,
        global_batch=own.global_batch if "--global-batch" in given else batch,
        precision=own.precision if "--precision" in given else found.precision,
        optimizer=own.optimizer
        if "--optimizer" in given
        else Optimizer.from_name(script.optimizer),
        software=replace(
            software, compiled=own.software.compiled, states=_states(script, software)
        ),
        beside=script.beside,
        frozen_passes=script.frozen_passes,
        sequences_per_sample=script.sequences_per_sample,
    )
    training = replace(asked, workload=workload, trainer=choice)
    if script.architecture is None or choice.name != "huggingface":
        return training
    factor = traced_factor(script, training)
    return replace(training, workload=replace(workload, activation_factor=factor))


def _trainer_of(script: TracedScript) -> TrainerChoice:
    """The code that trains in the script; pieces are laid out as our own runtime does."""
    if script.architecture is None:
        return TrainerChoice(name="native", why="default for a model known by its pieces")
    wrapper = script.found.wrapper or ""
    name = "deepspeed" if wrapper == "DeepSpeedEngine" else "huggingface"
    return TrainerChoice(name=name, why=BY_SCRIPT)


def check_pieces(
    training: TrainingRequest, script: TracedScript, request: FitRequest | None
) -> None:
    """Refuse questions that only a known architecture answers; degrees of 1 ask for nothing.

    Raises:
        ConfigError: a flag does.
    """
    harmless = set() if request is None else _without_effect(request)
    for flag in _ARCHITECTURE_ALONE:
        if flag in training.given and flag not in harmless:
            raise ConfigError(
                f"{flag} needs a model whose architecture is known, but {script.why_pieces}; "
                "omit it: only data parallelism, ZeRO and recomputation can be predicted."
            )
    if request is not None and request.layout.recompute is Recompute.SELECTIVE:
        raise ConfigError(
            "--recompute selective needs a model whose architecture is known; use none or full."
        )
    if training.workload.precision.configured not in BUILTIN_PRECISIONS:
        known = " ".join(kind.value for kind in BUILTIN_PRECISIONS)
        raise ConfigError(
            f"--precision {training.workload.precision.value} needs a model whose architecture is "
            f"known; for this script: {known}."
        )


def _without_effect(request: FitRequest) -> set[str]:
    """Flags whose values ask for nothing."""
    layout = request.layout
    sizes = (*layout.mesh, layout.virtual_pipeline)
    flags = zip(("--tp", "--pp", "--cp", "--ep", "--vpp"), sizes, strict=True)
    harmless = {flag for flag, size in flags if size == 1}
    return harmless | ({"--offload"} if layout.offload is Offload.NONE else set())
