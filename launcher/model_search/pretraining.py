"""The launch that every run of a search on this machine is a variant of. Not: the runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoconf_launch.autotuner.recommend.native_layout import native_document
from autoconf_launch.core import ClusterSpec, RawConfig

from ..machine.discover import find_cluster
from ..request import LaunchRequest, TrackingChoice
from .folder import SearchFolder
from .prepare import Prepared
from .settings import WandbSettings
from .this_machine import local_request

_SCRIPT = "autoconf_launch.runtime.pretraining"
_LEAST_PROFILE_S = 600.0


def request_of(prepared: Prepared, folder: SearchFolder) -> LaunchRequest:
    """The pretraining of the base configuration; writes the two files that ranks read.

    Raises:
        ResultsFolderError: they cannot be written.
    """
    question, settings = prepared.question, prepared.settings
    base = folder.write_for_ranks("base", question.base)
    config = folder.write_for_ranks("runtime", _runtime_document(question.base, question.gpus))
    words = (
        *("--base-config", str(base), "--config", str(config)),
        *("--steps", str(settings.train.max_steps + 1)),
    )
    return replace(
        local_request(question.gpus),
        script=_SCRIPT,
        kind="module",
        script_args=words,
        local_rank_argument=False,
        autotuning="tune",
        trial_timeout_s=max(_LEAST_PROFILE_S, 60.0 * settings.train.max_minutes),
        tracking=tracking_of(settings.wandb),
        argv=tuple(_argv(prepared)),
    )


def _argv(prepared: Prepared) -> Iterator[str]:
    yield from ("search", f"search_config={prepared.settings.choice}")
    yield from sorted(prepared.settings.given)


def tracking_of(wandb: WandbSettings) -> TrackingChoice:
    """Weights & Biases where the settings want it."""
    if not wandb.enabled:
        return TrackingChoice()
    return TrackingChoice(
        trackers=("wandb",), project=wandb.project, wandb_key_file=wandb.key_file
    )


def _runtime_document(base: RawConfig, ranks: int) -> RawConfig:
    """The smallest micro-batch to begin with; fp32 where ranks have no GPU."""
    document = native_document(base, micro_batch=1)
    cluster: ClusterSpec = find_cluster(local_request(ranks))
    if all(device.name.startswith("cpu") for device in cluster.devices):
        return document.with_value(("bf16", "enabled"), False)
    return document
