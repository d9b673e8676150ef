"""How each candidate would be launched on a cluster, as text. Not: launching it."""

from __future__ import annotations

import re
import shlex

from autoconf_launch.autotuner.recommend.nemo_candidates import minutes_limit

from .candidates import SearchCandidate
from .described import RECIPE
from .folder import SearchFolder
from .question import SearchQuestion
from .settings import ClusterKind
from .slurm import SHEBANG, SlurmJob, container_flags, sbatch_text

_NEMO1 = "/opt/NeMo/examples/nlp/language_modeling"
_NEMO1_SCRIPTS = {
    "t5": "megatron_t5_pretraining.py",
    "mt5": "megatron_t5_pretraining.py",
    "bert": "megatron_bert_pretraining.py",
}
_NEMO1_SCRIPT = "megatron_gpt_pretraining.py"
_UNGIVEN = "???"
_HYDRA_PLAIN = re.compile(r"[\w./:+-]+|\?{3}")


def job_text(question: SearchQuestion, candidate: SearchCandidate, nodes: int) -> str:
    """What is submitted for a candidate: a batch script, or a command on Base Command."""
    command = training_command(question, candidate)
    if question.settings.cluster.kind is ClusterKind.BCP:
        tasks = question.gpus_per_node
        words = f"--nnodes {nodes} --npernode {tasks} --cmd {shlex.quote(command)}"
        return f"{SHEBANG}\nbcprun {words}\n"
    return sbatch_text(slurm_job(question, candidate, nodes, command))


def slurm_job(
    question: SearchQuestion, candidate: SearchCandidate, nodes: int, command: str
) -> SlurmJob:
    """A candidate's job, with the options of ``cluster/bcm.yaml``."""
    settings = question.settings
    cluster, folder = settings.cluster, SearchFolder(settings.train.logs).run(candidate.name)
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


def training_command(question: SearchQuestion, candidate: SearchCandidate) -> str:
    """NeMo's own pretraining of a candidate's file; one of NeMo 2.0 is a script."""
    logs, data = question.settings.train.logs, question.settings.paths.data or _UNGIVEN
    folder = SearchFolder(logs)
    if RECIPE in question.base:
        return shlex.join(("python3", "-u", str(folder.script(candidate.name))))
    script = _NEMO1_SCRIPTS.get(question.family.name, _NEMO1_SCRIPT)
    run = folder.run(candidate.name)
    return shlex.join(
        (
            *("python3", "-u", f"{_NEMO1}/{script}"),
            f"--config-path={folder.candidate(candidate.name).parent}",
            f"--config-name={candidate.name}.yaml",
            f"++data_dir={_hydra(data)}",
            f"++base_results_dir={_hydra(str(run.parent))}",
            f"++exp_manager.explicit_log_dir={_hydra(str(run / 'results'))}",
            "++exp_manager.create_checkpoint_callback=False",
        )
    )


def _hydra(value: str) -> str:
    """A value that hydra's grammar reads as this text."""
    if _HYDRA_PLAIN.fullmatch(value):
        return value
    return "'" + value.replace("'", "\\'") + "'"


def _gpus_of_node(question: SearchQuestion) -> int | None:
    """The cluster's own number where somebody gave it, else that of the training's nodes."""
    settings = question.settings
    own = settings.cluster.gpus_per_node
    is_given = "cluster.gpus_per_node" in settings.given
    return own if own is None or is_given else question.gpus_per_node


def _mounts(question: SearchQuestion) -> tuple[str, ...]:
    """Tool, results and data at their own places, then what the user adds."""
    paths = question.settings.paths
    logs = question.settings.train.logs
    results = (paths.results, *(() if logs.is_relative_to(paths.results) else (str(logs),)))
    own = (paths.tool, *results, paths.data)
    return tuple(dict.fromkeys(mount for mount in (*own, *paths.mounts) if mount))
