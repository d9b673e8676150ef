"""Texts that NVIDIA's own writer gives (auto_configurator, 24.12)."""

from __future__ import annotations

import pytest

from autoconf_launch.nemo.search.jobs import SlurmJob, container_flags, mount_pair, sbatch_text

MEASURE = """#!/usr/bin/env bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --dependency=afterany:101:102
#SBATCH -p luna
#SBATCH -A acct
#SBATCH --job-name=nemo_megatron_autoconfig:latency_measure
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=10:00

srun --container-image IMG --container-mounts /a:/a --no-container-mount-home \
-o /l/%j.log -e /l/%j.error  sh -c 'python3 a.py x=1'

set +x
"""
ALL_OPTIONS = """#!/usr/bin/env bash
#SBATCH --nodes=2
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --gpus-per-node=8
#SBATCH --dependency=singleton
#SBATCH -p batch
#SBATCH --job-name=j
#SBATCH --exclusive
#SBATCH --overcommit
#SBATCH --exclude=n1,n2
#SBATCH --output=/o/log_%j.out
#SBATCH --comment='FasterTransformer job'
#SBATCH --nodelist=n[3-4]
#SBATCH --time=0:30:00

srun  sh -c 'c1'

srun  sh -c 'c2'

set +x
"""


def test_a_job_in_a_container_is_written_as_nvidia_s() -> None:
    job = SlurmJob(
        name="nemo_megatron_autoconfig:latency_measure",
        commands=("python3 a.py x=1",),
        nodes=1,
        flags=container_flags("IMG", ["/a"], ["--no-container-mount-home"], "/l/%j"),
        tasks_per_node=1,
        dependency=("101", "102"),
        partition="luna",
        account="acct",
        mem="0",
        exclusive=True,
        time="10:00",
    )
    assert sbatch_text(job) == MEASURE


def test_every_option_stands_where_nvidia_s_writer_has_it() -> None:
    job = SlurmJob(
        name="j",
        commands=("c1", "c2"),
        nodes=2,
        tasks=16,
        tasks_per_node=8,
        gpus_per_task=1,
        gpus_per_node=8,
        dependency="singleton",
        partition="batch",
        exclusive=True,
        overcommit=True,
        exclude=("n1", "n2"),
        output="/o/log_%j.out",
        comment="FasterTransformer job",
        nodelist="n[3-4]",
        time="0:30:00",
    )
    assert sbatch_text(job) == ALL_OPTIONS


@pytest.mark.parametrize(("mount", "pair"), [("/a", "/a:/a"), ("/a:/b", "/a:/b")])
def test_a_bare_mount_stands_at_the_same_place_inside(mount: str, pair: str) -> None:
    assert mount_pair(mount) == pair


def test_a_command_with_quotes_stays_one_word() -> None:
    job = SlurmJob(name="j", commands=("echo 'a b'; rm x",), nodes=1)
    assert "sh -c 'echo '\"'\"'a b'\"'\"'; rm x'" in sbatch_text(job)
