"""Every key of a search, of all three generations of NVIDIA's tool. Not: what the values mean.

Sources: conf/ of the BigNLP HP tool (22.04 to 22.06) and of NeMo-Framework-Launcher's
auto_configurator (23.03 to 24.12). Keys of inference are valid, too; their search follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from autoconf_launch.core import ConfigError

TRAIN = ("search_config", "train_settings")
GROUPS = ("cluster", "search_config")
"""Keys whose value names a file of their folder."""
_HYDRA = "hydra"
_TOP = (
    "run_training_hp_search",
    "run_inference_hp_search",
    "cluster_type",
    "grid",
    "auto_configurator_path",
    "launcher_scripts_path",
    "fastertransformer_path",
    "bignlp_hp_tool_path",
    "bignlp_inference_path",
    "base_results_dir",
    "data_dir",
    "training_container",
    "inference_container",
    "container_mounts",
    "search_config_value",
)
_WANDB = ("enable", "api_key_file", "project")
_CLUSTER = (
    "type",
    "partition",
    "account",
    "exclusive",
    "overcommit",
    "gpus_per_task",
    "gpus_per_node",
    "gpu",
    "usd_per_gpu_hour",
    "mem",
    "job_name_prefix",
    "srun_args",
    "nodelist",
    "exclude",
    "comment",
)
_TRAIN = (
    "model_size_in_b",
    "num_nodes",
    "gpus_per_node",
    "gpu_memory_gb",
    "max_training_days",
    "limit_search_runs",
    "output_top_n",
    "max_steps_per_run",
    "max_minutes_per_run",
    "tflops_per_gpu",
    "num_tokens_in_b",
    "vocab_size",
    "seq_length",
    "global_batch_size",
    "custom_config",
    "logs",
    "override_search_num_nodes",
    "tensor_parallel_sizes",
    "pipeline_parallel_sizes",
    "context_parallel_sizes",
    "expert_parallel_sizes",
    "min_model_parallel_size",
    "max_model_parallel_size",
    "micro_batch_sizes",
    "act_ckpt_layers",
)
_INFERENCE_RUN = (
    "model_type",
    "model_train_name",
    "gpus_per_node",
    "data_type",
    "time_limit",
    "results_dir",
    "tensor_parallel_sizes",
    "pipeline_parallel_sizes",
)
_BENCHMARK = ("input_len", "output_len", "batch_sizes", "beam_width", "topk", "topp")
_BIGNLP_INFERENCE = (
    "vocab_size",
    "start_id",
    "end_id",
    "input_seq_len",
    "output_seq_len",
    "max_latency_ms",
    "top_n",
    "logs",
    "tensor_parallel_sizes",
    "pipeline_parallel_sizes",
    "max_batch_sizes",
)


def _all() -> Iterator[str]:
    yield from _TOP
    yield from GROUPS
    sections = {
        "wandb": _WANDB,
        "cluster": _CLUSTER,
        "search_config.train_settings": _TRAIN,
        "search_config.inference_settings": _BIGNLP_INFERENCE,
        "search_config.inference_settings.run": _INFERENCE_RUN,
        "search_config.inference_settings.benchmark": _BENCHMARK,
    }
    for section, names in sections.items():
        yield section
        yield from (f"{section}.{name}" for name in names)


KNOWN = frozenset(_all())
"""Full paths with dots; sections too, whose value may be given as a whole."""
_BY_LAST = {key.rpartition(".")[2]: key for key in sorted(KNOWN, reverse=True)}


def require_known(keys: Iterable[str]) -> None:
    """See that each key is one of ours.

    Raises:
        ConfigError: one is not; the message has the nearest one.
    """
    for key in keys:
        if key not in KNOWN and key.partition(".")[0].partition("/")[0] != _HYDRA:
            raise ConfigError(f"{key} is unknown; {_nearest(key)}")


def _nearest(key: str) -> str:
    """By the last word first: people leave the sections out."""
    last = key.rpartition(".")[2]
    near = [
        *([_BY_LAST[last]] if last in _BY_LAST else []),
        *get_close_matches(key, sorted(KNOWN), n=1),
        *(_BY_LAST[word] for word in get_close_matches(last, sorted(_BY_LAST), n=1)),
    ]
    if near:
        return f"did you mean '{near[0]}'?"
    return "keys are those of NVIDIA's conf/config.yaml, such as search_config=gpt3/5b."
