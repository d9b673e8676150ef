"""How each candidate would be launched on a cluster, as text. Not: launching it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.autotuner.recommend.nemo_candidates import minutes_limit

from .candidate_file import candidate_document
from .candidates import SearchCandidate
from .question import SearchQuestion
from .settings import ClusterKind, ClusterSettings
from .slurm import SlurmJob, container_flags, sbatch_text

_NEMO1 = "/opt/NeMo/examples/nlp/language_modeling"
_NEMO1_SCRIPTS = {
    "t5": "megatron_t5_pretraining.py",
    "mt5": "megatron_t5_pretraining.py",
    "bert": "megatron_bert_pretraining.py",
}
_NEMO1_SCRIPT = "megatron_gpt_pretraining.py"
_RECIPES = {
    "llama": "llama3_8b",
    "mixtral": "mixtral_8x7b",
    "mistral": "mistral_7b",
    "gemma": "gemma_7b",
    "nemotron": "nemotron4_15b",
    "qwen": "qwen2_7b",
    "qwen2": "qwen2_7b",
    "starcoder": "starcoder2_7b",
    "baichuan2": "baichuan2_7b",
    "chatglm": "chatglm3_6b",
}
"""Recipes of NeMo 2.0 that a run starts from; every number of the model is then set."""
_UNGIVEN = "???"


def job_text(question: SearchQuestion, candidate: SearchCandidate, nodes: int) -> str:
    """What is submitted for a candidate: a batch script, or a command on Base Command."""
    command = training_command(question, candidate)
    if question.settings.cluster.kind is ClusterKind.BCP:
        tasks = question.gpus_per_node
        return f"bcprun --nnodes {nodes} --npernode {tasks} --cmd {shlex.quote(command)}\n"
    return sbatch_text(slurm_job(question, candidate, nodes, command))


def slurm_job(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int, command: str
) -> SlurmJob:
    """A candidate's job, with the options of ``cluster/bcm.yaml``."""
    settings = question.settings
    cluster, folder = settings.cluster, _run_folder(question, candidate)
    each = question.gpus_per_node
    return SlurmJob(
        name=f"{cluster.job_name_prefix}{candidate.name}",
        commands=(command,),
        nodes=nodes,
        flags=container_flags(
            settings.paths.container or _UNGIVEN,
            _mounts(question),
            cluster.srun_args,
            str(folder / "log_%j"),
        ),
        tasks_per_node=each,
        gpus_per_task=cluster.gpus_per_task,
        gpus_per_node=None if cluster.gpus_per_task else each,
        partition=cluster.partition,
        account=cluster.account,
        mem=cluster.mem,
        exclusive=cluster.exclusive,
        overcommit=cluster.overcommit,
        exclude=cluster.exclude,
        comment=cluster.comment,
        nodelist=cluster.nodelist,
        time=minutes_limit(max(1, round(settings.train.max_minutes))),
    )


def training_command(question: SearchQuestion, candidate: SearchCandidate) -> str:
    """NeMo's own pretraining of a candidate's file, or of a recipe with its values."""
    if ("trainer", "strategy") in question.base:
        return shlex.join(("nemo", "llm", "pretrain", *_recipe_words(question, candidate)))
    logs, data = question.settings.train.logs, question.settings.paths.data or _UNGIVEN
    script = _NEMO1_SCRIPTS.get(question.family.name, _NEMO1_SCRIPT)
    return shlex.join(
        (
            *("python3", "-u", f"{_NEMO1}/{script}"),
            f"--config-path={logs / 'candidate_configs'}",
            f"--config-name={candidate.name}.yaml",
            f"++data_dir={data}",
            f"++base_results_dir={logs / 'training_logs'}",
            f"++exp_manager.explicit_log_dir={_run_folder(question, candidate) / 'results'}",
            "++exp_manager.create_checkpoint_callback=False",
        )
    )


def _recipe_words(question: SearchQuestion, candidate: SearchCandidate) -> Iterator[str]:
    recipe = _RECIPES.get(question.family.name, "llama3_8b")
    yield from ("--factory", recipe, "-y")
    document = candidate_document(question, candidate, question.nodes)
    for path, value in document.leaves():
        is_shape = path[:2] == ("model", "config") or path[:2] == ("trainer", "strategy")
        if is_shape or path in (("data", "micro_batch_size"), ("data", "global_batch_size")):
            yield f"{'.'.join(path)}={value}"
    yield f"trainer.max_steps={question.settings.train.max_steps}"
    yield f"log.log_dir={_run_folder(question, candidate)}"


def _run_folder(question: SearchQuestion, candidate: SearchCandidate) -> Path:
    return question.settings.train.logs / "training_logs" / candidate.name


def _mounts(question: SearchQuestion) -> tuple[str, ...]:
    """Tool, results and data at their own places, then what the user adds."""
    paths = question.settings.paths
    own = (paths.tool, paths.results, paths.data)
    return tuple(dict.fromkeys(mount for mount in (*own, *paths.mounts) if mount))


def cluster_words(cluster: ClusterSettings) -> str:
    """Who would launch it, for a sentence."""
    return "Slurm (bcm)" if cluster.kind is ClusterKind.BCM else "Base Command Platform (bcp)"
