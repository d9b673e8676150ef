"""What an hour of a cluster's GPU costs, and who says so. Not: what a step costs."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import ClusterSpec
from autoconf_launch.tuning_spaces.prices import price


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPrice:
    """A price and where it is from."""

    usd_per_gpu_hour: float
    how: str


def choose_price(given: float | None, cluster: ClusterSpec) -> ChosenPrice | None:
    """The flag's price, else the cluster file's, else the newest published; None if there is none.

    Args:
        given: of one GPU and hour, by a flag.
        cluster: nodes of equal GPUs.
    """
    if given is not None:
        return ChosenPrice(usd_per_gpu_hour=given, how="as given")
    node = cluster.nodes[0]
    if node.usd_per_hour is not None:
        each = node.usd_per_hour / len(node.devices)
        return ChosenPrice(usd_per_gpu_hour=each, how="by the cluster file")
    known = price(node.devices[0].name)
    if known is None:
        return None
    return ChosenPrice(
        usd_per_gpu_hour=known.usd_per_gpu_hour,
        how=f"{known.cloud} {known.instance}, {known.region}, {known.as_of}; {known.source}",
    )
