"""A row on unequal nodes as jobs of Megatron-LM: what runs it, and a command for each node.

Versions: fields of the configurations of megatron-core 0.8 to 0.14 (PyPI); its release notes of
0.9.0. FASOP's fork: github.com/AvatarHwang/FASOP, README and ``Megatron-LM-2/run_inter.sh``.
Heterogeneous jobs: slurm.schedmd.com/heterogeneous_jobs.html.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from autoconf_launch.core import Architecture, Layout, Precision, Recompute, Workload

from ..dialects import megatron as names

FORK = "FASOP's fork of Megatron-LM (Megatron-LM-2 in github.com/AvatarHwang/FASOP)"
_FORK_IMAGE = "nvcr.io/nvidia/pytorch:23.04-py3"
_PORT = 29500
_SHEBANG = "#!/usr/bin/env bash"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """A node in the order of ranks.

    Attributes:
        name: of its kind, such as ``4xA100-SXM-40GB``.
        gpus: that train.
        owned: GPUs of the whole node.
    """

    name: str
    gpus: int
    owned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A training on nodes that may differ; rank 0 is on the first one."""

    workload: Workload
    nodes: tuple[JobNode, ...]


def needs_fork(layout: Layout, model: Architecture) -> bool:
    """Whether Megatron-LM itself cannot cut the model into these stages."""
    return model.encoder_layers > 0 and layout.pipeline_parallel > 1


def job_obstacles(layout: Layout, workload: Workload) -> Iterator[str]:
    """Why no Megatron runs a row; nothing where one does."""
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


_OLDEST = (0, 8)
_SINCE = {
    names.FIRST_LAYERS: (0, 9),
    names.LAST_LAYERS: (0, 9),
    names.LAYOUT: (0, 13),
    names._FSDP: (0, 14),
}
"""Versions of megatron-core that first have a flag."""


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

    Args:
        layout: of the row.
        job: its nodes.
        arguments: of Megatron-LM, each with its flag first.
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
    """A branch for each node rank, with the kind of node that it must be."""
    yield 'case "${1:?rank of this node}" in'
    for rank, (node, command) in enumerate(zip(job.nodes, commands, strict=True)):
        yield f"{rank}) # {node.name}"
        yield f"  {command} ;;"
    yield f'*) echo "node rank $1 is not from 0 to {len(job.nodes) - 1}" >&2; exit 2 ;;'
    yield "esac"


def _torchrun_commands(job: NodeJob) -> list[str]:
    script = _SCRIPT_OF_T5 if job.workload.architecture.encoder_layers else _SCRIPT
    script = script if job.workload.architecture.causal else _SCRIPT_OF_BERT
    return [
        f"exec torchrun --nnodes {len(job.nodes)} --node-rank {rank} "
        f'--nproc-per-node {node.gpus} --master-addr "$MASTER_ADDR" '
        f'--master-port "${{MASTER_PORT:-{_PORT}}}" "${{MEGATRON_PATH:-.}}/{script}" '
        '"${arguments[@]}" "${@:2}"'
        for rank, node in enumerate(job.nodes)
    ]


_SCRIPT, _SCRIPT_OF_T5, _SCRIPT_OF_BERT = "pretrain_gpt.py", "pretrain_t5.py", "pretrain_bert.py"


def _fork_commands(layout: Layout, job: NodeJob) -> list[str]:
    split = "-".join(map(str, layout.pipeline_split or ()))
    sizes = (layout.tensor_parallel, layout.data_parallel, layout.pipeline_parallel)
    tail = " ".join(map(str, (layout.global_batch, layout.micro_batch, *sizes, split)))
    return [
        f'exec bash run_inter {rank} "$MASTER_ADDR" {node.gpus} {len(job.nodes)} {tail}'
        for rank, node in enumerate(job.nodes)
    ]


def fork_arguments(layout: Layout) -> str:
    """What ``run_inter`` passes of a layout, one argument on each line."""
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
    """What run_inter does not take as an argument."""
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
