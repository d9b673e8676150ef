"""How each candidate would be launched on a cluster, as text. Not: launching it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.autotuner.recommend.nemo_candidates import minutes_limit
from autoconf_launch.core import dotted

from .candidate_file import candidate_document
from .candidates import SearchCandidate
from .described import RECIPE
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
_SET_SECTIONS = (RECIPE, ("trainer", "strategy"))
_SET_OF_TRAINER = tuple(
    ("trainer", key)
    for key in ("num_nodes", "devices", "max_steps", "val_check_interval", "log_every_n_steps")
)
_UNGIVEN = "???"


def job_text(question: SearchQuestion, candidate: SearchCandidate, nodes: int) -> str:
    """What is submitted for a candidate: a batch script, or a command on Base Command."""
    command = training_command(question, candidate, nodes)
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
        gpus_per_node=_gpus_of_node(question),
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


def training_command(question: SearchQuestion, candidate: SearchCandidate, nodes: int) -> str:
    """NeMo's own pretraining of a candidate's file, or of a recipe with its values."""
    if RECIPE in question.base:
        return shlex.join(("nemo", "llm", "pretrain", *_recipe_words(question, candidate, nodes)))
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


def _recipe_words(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int
) -> Iterator[str]:
    recipe = _RECIPES.get(question.family.name, "llama3_8b")
    yield from ("--factory", recipe, "-y")
    document = candidate_document(question, candidate, nodes)
    for path, value in document.leaves():
        if path[0] == "data" or path[:2] in _SET_SECTIONS or path in _SET_OF_TRAINER:
            yield f"{dotted(path)}={value}"
    yield f"log.log_dir={_run_folder(question, candidate)}"


def notes_on_jobs(question: SearchQuestion) -> tuple[str, ...]:
    """What the jobs of a candidate do otherwise than the settings may seem to say."""
    if RECIPE not in question.base or question.settings.paths.data is None:
        return ()
    return (
        "Jobs that start from a recipe of NeMo 2.0 train on its made-up data, which no word of "
        "its command replaces; data_dir is not read.",
    )


def _gpus_of_node(question: SearchQuestion) -> int | None:
    """The cluster's own number where somebody gave it, else that of the training's nodes."""
    settings = question.settings
    own = settings.cluster.gpus_per_node
    is_given = "cluster.gpus_per_node" in settings.given
    return own if own is None or is_given else question.gpus_per_node


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
