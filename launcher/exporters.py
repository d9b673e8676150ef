"""The frameworks of exports: one row each."""

from typing import NamedTuple


class Exporter(NamedTuple):
    """A file suffix, and ``module:function`` for an optimum and for a base configuration.

    The first takes an ``Optimum``; the second a base configuration, parsed and as a document.
    """

    suffix: str
    optimum: str = ""
    base: str = ""


_OURS, _NEMO = "autoconf_launch.launcher.export", "autoconf_launch.nemo.export"
TABLE = {
    "accelerate": Exporter(".yaml", f"{_OURS}.optimum:accelerate"),
    "deepspeed": Exporter(".json", f"{_OURS}.optimum:deepspeed"),
    "torchtitan": Exporter(
        ".toml", f"{_OURS}.torchtitan:optimum_tables", f"{_OURS}.torchtitan:base_tables"
    ),
    "torchtitan_module": Exporter(".py", base=f"{_OURS}.torchtitan:torchtitan_module"),
    "megatron": Exporter(
        ".args", f"{_OURS}.megatron:optimum_arguments", f"{_OURS}.megatron:base_arguments"
    ),
    "lightning": Exporter(".yaml", f"{_OURS}.optimum:lightning"),
    "hf_trainer": Exporter(".args", f"{_OURS}.optimum:hf_trainer"),
    "nemo1": Exporter(".yaml", f"{_OURS}.optimum:nemo1", f"{_NEMO}.nemo1_file:nemo1"),
    "nemo2": Exporter(".py", f"{_NEMO}.nemo2_call:nemo2_lines", f"{_NEMO}.nemo2_call:nemo2"),
    "native": Exporter(".json", f"{_OURS}.optimum:native"),
}
EXPORTERS = tuple(name for name, row in TABLE.items() if row.optimum)
"""Frameworks that an optimum can be exported to."""
BASE_EXPORTERS = ("nemo1", "nemo2", "megatron", "torchtitan", "torchtitan_module")
"""Frameworks that a base configuration can be exported to, in the order that help lists them."""
SUFFIXES = {name: row.suffix for name, row in TABLE.items()}
