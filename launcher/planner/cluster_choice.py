"""``--cluster`` to a ClusterSpec: a short name or a file. Not: the machines that are there."""

from __future__ import annotations

from pathlib import Path

from autoconf_launch.core import ClusterSpec, ConfigError
from autoconf_launch.tuning_spaces.clusters import cluster_of_document, parse_cluster

from ..config_file import read_config

_FILES = (".yaml", ".yml", ".json", ".hjson")


def choose_cluster(text: str) -> ClusterSpec:
    """Nodes of ``8xA100-SXM-80GB``, ``64x8xH100-SXM-80GB`` or a file with ``nodes``.

    Raises:
        ConfigError: another form, an unknown GPU, a file that cannot be read.
    """
    path = Path(text)
    if path.suffix.lower() not in _FILES:
        return parse_cluster(text)
    document = read_config(path)
    try:
        return cluster_of_document(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
