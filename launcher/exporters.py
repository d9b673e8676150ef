"""The frameworks of exports: one row each, loaded when it is asked for."""

from types import MappingProxyType

_OURS, _NEMO = "autoconf_launch.launcher.export", "autoconf_launch.nemo.export"
EXPORTERS = MappingProxyType(
    {
        "accelerate": f"{_OURS}.optimum:accelerate",
        "deepspeed": f"{_OURS}.optimum:deepspeed",
        "torchtitan": f"{_OURS}.torchtitan:torchtitan",
        "megatron": f"{_OURS}.megatron:megatron",
        "lightning": f"{_OURS}.optimum:lightning",
        "hf_trainer": f"{_OURS}.optimum:hf_trainer",
        "nemo1": f"{_NEMO}.nemo1_file:nemo1",
        "nemo2": f"{_NEMO}.nemo2_call:nemo2",
        "native": f"{_OURS}.optimum:native",
        "torchtitan_module": f"{_OURS}.torchtitan:torchtitan_module",
    }
)
"""Name -> ``module:function``; exporters of other packages have the entry-point group
``autoconf_launch.exporter``."""
BASE_EXPORTERS = ("nemo1", "nemo2", "megatron", "torchtitan", "torchtitan_module")
"""Frameworks that a base configuration can be exported to, in the order that help lists them."""
LAYOUT_EXPORTERS = tuple(name for name in EXPORTERS if name != "torchtitan_module")
"""Frameworks that a layout without a model can be exported to."""
