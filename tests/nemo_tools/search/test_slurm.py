"""Texts that NVIDIA's own writer gives (auto_configurator, 24.12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search import ClusterKind, ClusterSettings
from autoconf_launch.nemo.search.jobs import (
    SlurmJob,
    container_flags,
    mount_pair,
    sbatch_text,
    sbatch_words,
)

MEASURE = """#!/usr/bin/env bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
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
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --gpus-per-node=8
#SBATCH -p batch
#SBATCH --job-name=j
#SBATCH --exclusive
#SBATCH --overcommit
#SBATCH --exclude=n1,n2
#SBATCH --comment='FasterTransformer job'
#SBATCH --nodelist=n[3-4]
#SBATCH --time=0:30:00

srun  sh -c 'c1'

set +x
"""
BCM = ClusterKind.BCM


def job(command: str, flags: str = "", **settings: Any) -> SlurmJob:
    return SlurmJob(
        name="j",
        commands=(command,),
        nodes=2,
        tasks_per_node=8,
        cluster=ClusterSettings(kind=BCM, **{"exclusive": True, **settings}),
        flags=flags,
        time="0:30:00",
    )


def test_a_job_in_a_container_is_written_as_nvidia_s() -> None:
    flags = container_flags("IMG", ["/a"], ["--no-container-mount-home"], "/l/%j")
    in_container = replace(
        job("python3 a.py x=1", flags, partition="luna", account="acct", mem="0"),
        name="nemo_megatron_autoconfig:latency_measure",
        nodes=1,
        tasks_per_node=1,
        time="10:00",
    )
    assert sbatch_text(in_container) == MEASURE


def test_every_option_stands_where_nvidia_s_writer_has_it() -> None:
    options = job(
        "c1",
        gpus_per_task=1,
        gpus_per_node=8,
        partition="batch",
        exclusive=True,
        overcommit=True,
        exclude=("n1", "n2"),
        comment="FasterTransformer job",
        nodelist="n[3-4]",
    )
    assert sbatch_text(options) == ALL_OPTIONS


@pytest.mark.parametrize(
    "key", ["partition", "account", "mem", "nodelist", "comment", "job_name_prefix", "exclude"]
)
@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\u2028"])
def test_no_option_ends_its_line(key: str, end: str) -> None:
    text = f"x{end}#SBATCH --wrap=planted"
    options = job("python3 a.py", "", **{key: (text,) if key == "exclude" else text})
    with pytest.raises(ConfigError, match="one printable line"):
        sbatch_text(replace(options, name=f"{options.cluster.job_name_prefix}{options.name}"))


@pytest.mark.parametrize(("mount", "pair"), [("/a", "/a:/a"), ("/a:/b", "/a:/b")])
def test_a_bare_mount_stands_at_the_same_place_inside(mount: str, pair: str) -> None:
    assert mount_pair(mount) == pair


def test_a_command_with_quotes_stays_one_word() -> None:
    assert "sh -c 'echo '\"'\"'a b'\"'\"'; rm x'" in sbatch_text(job("echo 'a b'; rm x"))


def test_further_options_come_after_nvidia_s() -> None:
    further: dict[str, Any] = {
        "qos": "high",
        "gres": "gpu:h100:8",
        "sbatch_args": ("--constraint='a b'", "-x n1"),
    }
    before = sbatch_text(job("c1", partition="batch")).split("\n\n")
    after = sbatch_text(job("c1", partition="batch", **further)).split("\n\n")
    lines = ["--qos=high", "--gres=gpu:h100:8", "--constraint='a b'", "-x n1"]
    assert after[0] == "\n".join([before[0], *(f"#SBATCH {line}" for line in lines)])
    assert after[1:] == before[1:]


@pytest.mark.parametrize("text", ["wrap=x", "--a\n#SBATCH --wrap=planted", "--comment='open", ""])
def test_a_further_option_is_one_whole_option(text: str) -> None:
    with pytest.raises(ConfigError):
        sbatch_text(job("c1", sbatch_args=(text,)))


def test_the_same_options_are_words_of_sbatch_for_our_own_launches() -> None:
    cluster = job("", partition="p", comment="it's $x", exclusive=True, mem="0", qos="q").cluster
    words = sbatch_words(replace(cluster, sbatch_args=("--constraint='a b' -x n1",)), "gpt")
    assert words == (
        *("--job-name=gpt", "--partition=p", "--mem=0", "--comment=it's $x", "--qos=q"),
        *("--exclusive", "--constraint=a b", "-x", "n1"),
    )
