"""Megatron-LM: an optimum or a base configuration as arguments, and jobs on unequal nodes.

Parsed and validated by ``megatron/training/arguments.py`` of Megatron-LM 0.6.0 (hetu-galvatron
2.4.0 has it, PyPI), built by megatron-core 0.16.1 (PyPI); names are from NVIDIA/Megatron-LM at
000c4ac24f61. Versions: configurations of megatron-core 0.8 to 0.14 (PyPI); release notes of 0.9.0.
FASOP fork: github.com/AvatarHwang/FASOP, README and ``Megatron-LM-2/run_inter.sh``.
Heterogeneous jobs: slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from autoconf_launch.autotuner.sizing import Pretraining, RateSchedule, TrainedModel
from autoconf_launch.core import (
    Architecture,
    Layout,
    Offload,
    Precision,
    Recompute,
    Workload,
)

from ..dialects import MegatronDialect
from ..dialects import megatron as names
from ..spelling import set_argument
from .page import (
    HALVES,
    NEMO_DEGREES,
    Exported,
    NodeJob,
    Optimum,
    Page,
    argument_lines,
    comment_on,
    groups_told,
    layers_per_stage,
    splits_sequence,
    write_table,
)

FORK = "FASOP's fork of Megatron-LM (Megatron-LM-2 in github.com/AvatarHwang/FASOP)"
_FORK_IMAGE = "nvcr.io/nvidia/pytorch:23.04-py3"
_PORT = 29500
_SHEBANG = "#!/usr/bin/env bash"
_OLDEST = (0, 8)
_SINCE = {
    names.FIRST_LAYERS: (0, 9),
    names.LAST_LAYERS: (0, 9),
    names.LAYOUT: (0, 13),
    names.MEGATRON_FSDP: (0, 14),
}
"""Versions of megatron-core that first have a flag."""
_SCRIPT_OF_GPT, _SCRIPT_OF_T5, _SCRIPT_OF_BERT = (
    "pretrain_gpt.py",
    "pretrain_t5.py",
    "pretrain_bert.py",
)
SCRIPTS = {"t5": "pretrain_t5.py", "mt5": "pretrain_t5.py", "bert": "pretrain_bert.py"}
_SCRIPT = "pretrain_gpt.py"
_GELU_GATED = frozenset({"t5", "mt5", "gemma"})
"""Families with a GELU gate, which Megatron-LM's arguments cannot express."""
_OF_FAMILY = {
    "qwen": ("--add-qkv-bias",),
    "qwen2": ("--add-qkv-bias",),
    "chatglm": ("--add-qkv-bias", "--rotary-percent 0.5"),
    "nemotron": ("--apply-layernorm-1p", "--rotary-percent 0.5"),
}
"""Flags of families, as NeMo's classes have them (nemo_toolkit 2.7.3)."""
_LAYER_NORM = frozenset({"gpt3", "t5", "mt5", "bert", "nemotron", "starcoder"})
_SQUARED_RELU = frozenset({"nemotron"})


def needs_fork(layout: Layout, model: Architecture) -> bool:
    """True if Megatron-LM itself cannot cut the model into these stages."""
    return model.encoder_layers > 0 and layout.pipeline_parallel > 1


def job_obstacles(layout: Layout, workload: Workload) -> Iterator[str]:
    """The reason why no Megatron runs a row; nothing if one does."""
    if not needs_fork(layout, workload.architecture):
        return
    split = layout.pipeline_split or ()
    if workload.architecture.encoder_layers not in accumulate(split):
        yield f"{FORK} needs the encoder's last layer at the end of a stage"
    unknown = {
        "recomputation": layout.recompute is not Recompute.NONE,
        "sequence parallelism": layout.sequence_parallel,
        f"ZeRO {layout.zero_stage}": layout.zero_stage > 1,
        f"{workload.precision.value}": workload.precision is not Precision.FP16,
    }
    yield from (f"{FORK} runs a T5 without {name}" for name, has in unknown.items() if has)


def runs_on(flags: Sequence[str]) -> str:
    """The oldest Megatron-LM that has all these flags."""
    major, minor = max((_SINCE.get(flag, _OLDEST) for flag in flags), default=_OLDEST)
    return f"Megatron-LM with megatron-core {major}.{minor} or later"


def model_arguments(workload: Workload) -> Iterator[str]:
    """Shapes of the model as Megatron-LM's arguments."""
    model = workload.architecture
    if model.encoder_layers:
        yield f"--encoder-num-layers {model.encoder_layers}"
        yield f"--decoder-num-layers {model.layers}"
        yield f"--encoder-seq-length {workload.sequence_length}"
        yield f"--decoder-seq-length {workload.logit_tokens}"
    else:
        yield f"--num-layers {model.layers}"
    yield f"--hidden-size {model.hidden}"
    yield f"--ffn-hidden-size {model.ffn}"
    yield f"--num-attention-heads {model.heads}"
    yield f"--kv-channels {model.head}"
    if model.kv_heads != model.heads:
        yield f"--group-query-attention --num-query-groups {model.kv_heads}"
    if (experts := model.experts) is not None:
        yield f"--num-experts {experts.count}"
        yield f"--moe-router-topk {experts.per_token}"
        yield f"--moe-ffn-hidden-size {experts.ffn}"
    yield f"--max-position-embeddings {model.positions or workload.sequence_length}"
    switches = {
        "--position-embedding-type rope": not model.positions,
        "--swiglu": model.gated,
        "--disable-bias-linear": not model.biases,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
    }
    yield from (switch for switch, is_on in switches.items() if is_on)


def job_files(
    layout: Layout, job: NodeJob, arguments: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Scripts by their suffix: torchrun and docker on each node, and a batch job of all.

    ``arguments`` are Megatron-LM's, each with its flag first.
    """
    is_fork = needs_fork(layout, job.workload.architecture)
    commands = _fork_commands(layout, job) if is_fork else _torchrun_commands(job)
    what = FORK if is_fork else runs_on([one.split()[0] for one in arguments])
    head = [_SHEBANG, f"# Runs on {what}.", *(_fork_notes(layout, job) if is_fork else ())]
    lists = [] if is_fork else _argument_list([*model_arguments(job.workload), *arguments])
    torchrun = [
        *head,
        "# On each node, in this order: MASTER_ADDR=<first node> bash layout.megatron.torchrun.sh"
        " NODE_RANK [further arguments, such as data and tokenizer]",
        *_checks("MASTER_ADDR"),
        *lists,
        *_case(job, commands),
    ]
    docker = [
        *head,
        "# On each node, in this order: MASTER_ADDR=<first node> bash layout.megatron.docker.sh"
        " NODE_RANK",
        *_checks("MASTER_ADDR"),
        *_case(job, _docker_commands(job, commands if is_fork else None)),
    ]
    return (
        (".torchrun.sh", _text(torchrun)),
        (".docker.sh", _text(docker)),
        (".sbatch", _text(_batch(job, head))),
    )


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _checks(*variables: str) -> Iterator[str]:
    yield "set -euo pipefail"
    yield from (f': "${{{name}:?name of the first node}}"' for name in variables)


def _argument_list(arguments: Sequence[str]) -> list[str]:
    quoted = (" ".join(shlex.quote(word) for word in shlex.split(one)) for one in arguments)
    return ["arguments=(", *(f"  {one}" for one in quoted), ")"]


def _case(job: NodeJob, commands: Sequence[str]) -> Iterator[str]:
    """A branch for each node rank, with the required kind of node."""
    yield 'case "${1:?rank of this node}" in'
    for rank, (node, command) in enumerate(zip(job.nodes, commands, strict=True)):
        yield f"{rank}) # {node.name}"
        yield f"  {command} ;;"
    yield f'*) echo "node rank $1 is not from 0 to {len(job.nodes) - 1}" >&2; exit 2 ;;'
    yield "esac"


def _torchrun_commands(job: NodeJob) -> list[str]:
    script = _SCRIPT_OF_T5 if job.workload.architecture.encoder_layers else _SCRIPT_OF_GPT
    script = script if job.workload.architecture.causal else _SCRIPT_OF_BERT
    return [
        f"exec torchrun --nnodes {len(job.nodes)} --node-rank {rank} "
        f'--nproc-per-node {node.gpus} --master-addr "$MASTER_ADDR" '
        f'--master-port "${{MASTER_PORT:-{_PORT}}}" "${{MEGATRON_PATH:-.}}/{script}" '
        '"${arguments[@]}" "${@:2}"'
        for rank, node in enumerate(job.nodes)
    ]


def _fork_commands(layout: Layout, job: NodeJob) -> list[str]:
    split = "-".join(map(str, layout.pipeline_split or ()))
    sizes = (layout.tensor_parallel, layout.data_parallel, layout.pipeline_parallel)
    tail = " ".join(map(str, (layout.global_batch, layout.micro_batch, *sizes, split)))
    return [
        f'exec bash run_inter {rank} "$MASTER_ADDR" {node.gpus} {len(job.nodes)} {tail}'
        for rank, node in enumerate(job.nodes)
    ]


def fork_arguments(layout: Layout) -> str:
    """The arguments that ``run_inter`` passes for a layout, one on each line."""
    sizes = {
        "--micro-batch-size": layout.micro_batch,
        "--global-batch-size": layout.global_batch,
        "--tensor-model-parallel-size": layout.tensor_parallel,
        "--pipeline-model-parallel-size": layout.pipeline_parallel,
        "--balance": "-".join(map(str, layout.pipeline_split or ())),
    }
    zero = f"{names.DISTRIBUTED_OPTIMIZER}\n" if layout.zero_stage else ""
    return "".join(f"{flag} {value}\n" for flag, value in sizes.items()) + zero + "--fp16\n"


def _fork_notes(layout: Layout, job: NodeJob) -> Iterator[str]:
    """Settings that run_inter does not take as arguments."""
    ends = list(accumulate(layout.pipeline_split or ()))
    stage = ends.index(job.workload.architecture.encoder_layers) + 1
    zero = "true" if layout.zero_stage else "false"
    yield (
        f"# In its _00_conf.sh: MODEL=T5, ZERO={zero}, PIPELINE_MODEL_PARALLEL_SPLIT_RANK={stage}."
    )
    yield "# Run it in its folder Megatron-LM-2."


def _docker_commands(job: NodeJob, fork: Sequence[str] | None) -> list[str]:
    found = []
    for rank, node in enumerate(job.nodes):
        devices = ",".join(map(str, range(node.gpus)))
        gpus = "all" if node.gpus == node.owned else shlex.quote(f'"device={devices}"')
        run = f"exec docker run --rm --gpus {gpus} --network host --ipc host"
        inside = f"bash layout.megatron.torchrun.sh {rank}" + ' "${@:2}"'
        image = '"${IMAGE:?a container image with Megatron-LM}"'
        if fork is not None:
            inside, image = fork[rank].removeprefix("exec "), _FORK_IMAGE
        run += " --env MASTER_ADDR --env MASTER_PORT --env MEGATRON_PATH"
        mount = '--volume "$PWD":/workspace/job --workdir /workspace/job'
        found.append(f"{run} {mount} {image} {inside}")
    return found


def _batch(job: NodeJob, head: Sequence[str]) -> Iterator[str]:
    """A heterogeneous job: a component for each run of equal nodes, in the order of ranks."""
    groups = [(node, len(list(same))) for node, same in groupby(job.nodes)]
    yield from head
    yield "# Submit it in this folder. Name the partition or constraint of each kind of node."
    for number, (node, count) in enumerate(groups):
        if number:
            yield "#SBATCH hetjob"
        yield f"# {count} x {node.name}"
        yield f"#SBATCH --nodes={count} --ntasks-per-node=1 --exclusive"
        yield f"#SBATCH --gpus-per-node={node.gpus}"
    yield 'cd "$SLURM_SUBMIT_DIR"'
    yield 'first="${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}"'
    yield 'export MASTER_ADDR="$(scontrol show hostnames "$first" | head -n 1)"'
    group = f"--het-group=0-{len(groups) - 1} " if len(groups) > 1 else ""
    script = 'exec bash layout.megatron.torchrun.sh "$SLURM_PROCID" "$@"'
    yield f'srun {group}bash -c {shlex.quote(script)} job "$@"'


def _base_arguments(base: Pretraining) -> Exported:
    left_out = (*groups_told(base), *_left_out(base))
    lines = [
        f"# for {SCRIPTS.get(base.family.name, _SCRIPT)}, with data and tokenizer of your own",
        *_base_model(base),
        *_schedule(base.schedule),
        *_base_split(base),
    ]
    return comment_on("\n".join(lines) + "\n", ".args", left_out)


def _base_model(base: Pretraining) -> Iterator[str]:
    model, family = base.model, base.family.name
    if model.decoder_sequence is not None:
        yield f"--encoder-num-layers {model.shape.layers}"
        yield f"--decoder-num-layers {model.shape.layers}"
        yield f"--encoder-seq-length {model.sequence}"
        yield f"--decoder-seq-length {model.decoder_sequence}"
    else:
        yield f"--num-layers {model.shape.layers}"
        yield f"--seq-length {model.sequence}"
    yield f"--hidden-size {model.shape.hidden}"
    yield f"--ffn-hidden-size {model.shape.ffn}"
    yield f"--num-attention-heads {model.shape.heads}"
    yield f"--kv-channels {model.shape.kv}"
    yield f"--hidden-dropout {model.hidden_dropout:g}"
    yield f"--attention-dropout {model.attention_dropout:g}"
    if model.form.groups != model.shape.heads:
        yield "--group-query-attention"
        yield f"--num-query-groups {model.form.groups}"
    yield f"--max-position-embeddings {model.sequence}"
    if model.vocabulary is not None:
        yield f"--vocab-size {model.vocabulary}"
    yield from _kind(model, family)
    if model.form.experts:
        yield f"--num-experts {model.form.experts}"
        yield f"--moe-router-topk {model.form.experts_per_token}"
    yield f"--init-method-std {model.init_std:g}"


def _kind(model: TrainedModel, family: str) -> Iterator[str]:
    if not model.form.learned_positions:
        yield "--position-embedding-type rope"
    if family not in _LAYER_NORM:
        yield "--normalization RMSNorm"
    if model.form.gated:
        yield "--swiglu"
    if family in _SQUARED_RELU:
        yield "--squared-relu"
    if not model.form.biases:
        yield "--disable-bias-linear"
    if not model.form.tied:
        yield "--untie-embeddings-and-output-weights"
    yield from _OF_FAMILY.get(family, ())


def _schedule(schedule: RateSchedule) -> Iterator[str]:
    """After ``lr-decay-iters`` the lowest rate stays, as NeMo's constant steps have it."""
    yield f"--train-iters {schedule.steps}"
    yield f"--lr {schedule.learning_rate:g}"
    yield f"--min-lr {schedule.least_rate:g}"
    yield f"--lr-decay-style {'cosine' if schedule.is_cosine else 'linear'}"
    yield f"--lr-decay-iters {max(1, schedule.steps - schedule.constant_steps)}"
    yield f"--lr-warmup-iters {schedule.warmup_steps}"
    yield f"--weight-decay {schedule.weight_decay:g}"
    yield f"--adam-beta1 {schedule.betas[0]:g}"
    yield f"--adam-beta2 {schedule.betas[1]:g}"
    yield f"--adam-eps {schedule.epsilon:g}"
    yield f"--clip-grad {schedule.clip:g}"


def _base_split(base: Pretraining) -> Iterator[str]:
    split = base.split
    yield f"{names.GLOBAL_BATCH_FLAG} {split.global_batch}"
    yield f"{names.MEGATRON_MICRO_BATCH} {split.layout.micro_batch}"
    for knob in NEMO_DEGREES:
        yield f"{names.MEGATRON_DEGREES[knob]} {getattr(split.layout, knob)}"
    yield from _virtual(base)
    if splits_sequence(base):
        yield names.SEQUENCE_PARALLEL
    yield names.DISTRIBUTED_OPTIMIZER
    yield "--bf16"


def _virtual(base: Pretraining) -> Iterator[str]:
    """Virtual stages by layers, which every version reads, if the stages are equal."""
    each = layers_per_stage(base)
    if each is not None:
        yield f"{names.VIRTUAL_LAYERS} {each}"
    elif base.split.virtual:
        yield f"{names.VIRTUAL_STAGES} {base.split.virtual}"


def _left_out(base: Pretraining) -> Iterator[str]:
    if base.model.form.gated and base.family.name in _GELU_GATED:
        yield (
            "a GELU-gated MLP: exported as --swiglu of equal size; --quick-geglu is nearer, "
            "where Megatron-LM has it"
        )


def megatron(optimum: Optimum) -> Exported:
    """Megatron-LM's arguments, one on each line; for unequal nodes also commands for each node."""
    return _base_arguments(optimum.training) if optimum.training else _layout_arguments(optimum)


def _layout_arguments(optimum: Optimum) -> Exported:
    layout, page = optimum.layout, Page(optimum)
    inputs = write_table(MegatronDialect(), page, but=("zero_stage",))
    more: list[str] = []
    if layout.zero_stage:
        more.append(names.DISTRIBUTED_OPTIMIZER)
    if layout.zero_stage in names.SHARDINGS:
        more += [
            names.MEGATRON_FSDP,
            names.SHARDING,
            names.SHARDINGS[layout.zero_stage],
        ]
    page.mark_done("zero_stage", "accumulation")
    if layout.micro_batch_split is not None:
        page.change("micro_batch_split", "our own runtime alone trains it")
    if optimum.job is not None:  # its nodes are in the order of the ranks
        page.mark_done("placement")
    if layout.offload is Offload.OPTIMIZER:
        more.append(names.OPTIMIZER_OFFLOAD)
        page.mark_done("offload")
    more += names.STATES.get(optimum.states, ())
    if optimum.precision in HALVES:
        more.append(f"--{optimum.precision.value}")
    if optimum.sequence_length:
        more += ["--seq-length", str(optimum.sequence_length)]
    exported = argument_lines((*_with_some_layers(inputs.arguments, page), *more), page)
    return exported if optimum.job is None else _with_job(optimum, optimum.job, exported)


def _with_job(optimum: Optimum, job: NodeJob, exported: Exported) -> Exported:
    why = tuple(job_obstacles(optimum.layout, job.workload))
    if why or exported.changed:
        return replace(exported, changed=(*exported.changed, *why))
    arguments = [line for line in exported.text.splitlines() if not line.startswith("#")]
    is_fork = needs_fork(optimum.layout, job.workload.architecture)
    what = FORK if is_fork else runs_on([line.split()[0] for line in arguments])
    text = fork_arguments(optimum.layout) if is_fork else exported.text
    return replace(
        exported,
        text=f"# Runs on {what}.\n{text}",
        files=job_files(optimum.layout, job, arguments),
    )


def _with_some_layers(arguments: tuple[str, ...], page: Page) -> tuple[str, ...]:
    """Megatron-LM's ``block`` method recomputes some layers of a stage in full."""
    layers = page.layers_of_block()
    if layers is None:
        return arguments
    for name, value in ((names.METHOD, "block"), (names.NUM_LAYERS, layers)):
        arguments = set_argument(arguments, name, str(value))
    return arguments
