"""One row for each framework that something is exported to."""

EXPORTERS = {
    "accelerate": "autoconf_launch.launcher.export.optimum:accelerate",
    "deepspeed": "autoconf_launch.launcher.export.optimum:deepspeed",
    "torchtitan": "autoconf_launch.launcher.export.optimum:torchtitan",
    "megatron": "autoconf_launch.launcher.export.optimum:megatron",
    "lightning": "autoconf_launch.launcher.export.optimum:lightning",
    "hf_trainer": "autoconf_launch.launcher.export.optimum:hf_trainer",
    "nemo1": "autoconf_launch.launcher.export.optimum:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_recipe:nemo2",
    "native": "autoconf_launch.launcher.export.optimum:native",
}
"""An optimum's exporters: ``name -> "module:function"``."""
BASE_EXPORTERS = {
    "nemo1": "autoconf_launch.nemo.export.nemo1_file:nemo1",
    "nemo2": "autoconf_launch.nemo.export.nemo2_call:nemo2",
    "megatron": "autoconf_launch.launcher.export.megatron_flags:megatron",
    "torchtitan": "autoconf_launch.launcher.export.torchtitan:torchtitan",
    "torchtitan_module": "autoconf_launch.launcher.export.torchtitan:torchtitan_module",
}
SUFFIXES = {
    "deepspeed": ".json",
    "native": ".json",
    "nemo1": ".yaml",
    "nemo2": ".py",
    "megatron": ".args",
    "torchtitan": ".toml",
    "torchtitan_module": ".py",
}
"""What an export's file is called after the framework's name."""
