"""Inputs of users: each kind with sound examples, damage, and the command that reads it."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from autoconf_launch.autotuner.space import Record, encode_record
from autoconf_launch.core import encode
from autoconf_launch.launcher.commands.recommend import recommend
from autoconf_launch.launcher.results.journal import FORMAT, VERSION
from autoconf_launch.launcher.results.paths import PROFILE

from ..launcher.controlled import PRINT, answers_for_all, space
from .mutation import HOSTILE, WORDS, damage_text, mutate, places

ROOT = Path(__file__).parents[2]
SCRIPT = "raise SystemExit('a fuzzed command was launched')\n"
DEEPSPEED_SCRIPT = f"import deepspeed\ndeepspeed.initialize()\n{SCRIPT}"


@dataclass(frozen=True)
class Case:
    """One damaged input: the command, and what its refusal must name.

    ``file`` or nothing, and one of ``keys`` at least, where there are any; or what ``instead``
    has: a flag that a sound file does not agree with. ``longest_s`` is CPU time.
    """

    argv: tuple[str, ...]
    file: str
    keys: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    longest_s: float = 2.0


@dataclass(frozen=True)
class Kind:
    """A kind of input; ``make`` writes a damaged one below a folder."""

    name: str
    count: int
    make: Callable[[Random, Path], Case]


SOUND_CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": False},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}},
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {"total_num_steps": 60, "warmup_num_steps": 10, "cos_min_ratio": 0.1},
    },
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 50_000_000, "overlap_comm": True},
    "activation_checkpointing": {"mode": "none"},
    "parallelism": {"tensor": 1, "pipeline": 1},
    "autotuning": {
        "enabled": True,
        "fast": False,
        "metric": "throughput",
        "tuner_type": "gridsearch",
        "tuner_num_trials": 9,
        "tuner_early_stopping": 4,
        "start_profile_step": 3,
        "end_profile_step": 5,
        "max_train_micro_batch_size_per_gpu": 8,
        "arg_mappings": {"train_micro_batch_size_per_gpu": "--batch"},
        "results_dir": "results",
        "exps_dir": "exps",
    },
}
DEEPSPEED_CONFIG: dict[str, Any] = {
    **{k: v for k, v in SOUND_CONFIG.items() if k not in ("parallelism",)},
    "train_micro_batch_size_per_gpu": [1, 2, 4],
    "zero_optimization": {
        "stage": [0, 1, 2, 3],
        "allgather_bucket_size": [5e7, 5e8],
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "stage3_max_live_parameters": 1e9,
    },
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16},
    "activation_checkpointing": {"partition_activations": False},
    "steps_per_print": 10,
    "wall_clock_breakdown": False,
}
HUGGING_FACE: tuple[dict[str, Any], ...] = (
    {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 128256, "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
        "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "torch_dtype": "bfloat16",
    },
    {
        "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257, "n_inner": None, "activation_function": "gelu_new",
    },
    {
        "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "vocab_size": 129280,
    },
    {
        "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "intermediate_size": 10240, "vocab_size": 262208, "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152},
    },
    {
        "model_type": "t5", "d_model": 512, "num_layers": 6, "num_decoder_layers": 6,
        "num_heads": 8, "d_kv": 64, "d_ff": 2048, "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32,
    },
)  # fmt: skip
CLUSTER: dict[str, Any] = {
    "nodes": [
        {
            "gpu": "H100-SXM-80GB", "count": 2, "gpus": 8, "memory_gib": 79.1,
            "link_gb_per_s": 450, "network_gb_per_s": 50, "host_memory_gib": 2048,
            "usd_per_hour": 55.04,
        },
        {"gpu": "A100-SXM-80GB", "count": 1, "gpus": 8},
    ]
}  # fmt: skip
OVERRIDES = (
    "search_config=gpt3/5b", "search_config=gpt3/0.126b", "search_config=llama/llama2_7b",
    "search_config.train_settings.num_nodes=8",
    "search_config.train_settings.gpus_per_node=8",
    "search_config.train_settings.max_training_days=5",
    "search_config.train_settings.tensor_parallel_sizes=[1,2,4]",
    "search_config.train_settings.micro_batch_sizes=auto",
    "search_config.train_settings.model_size_in_b=5",
    "search_config.train_settings.vocab_size=51200",
    "search_config.train_settings.seq_length=2048",
    "search_config.train_settings.global_batch_size=512",
    "search_config.train_settings.act_ckpt_layers=[0,1]",
    "cluster.partition=batch", "cluster.account=me", "cluster.job_name_prefix=x",
    "cluster.nodelist=n[3-4],m7", "cluster_type=bcm", "grid=nemo", "base_results_dir=results",
    "data_dir=data", "wandb.enable=False", "run_training_hp_search=True",
)  # fmt: skip


_STANDS_BY_CHANCE = 4
"""Length of a new key that a message may have without meaning it."""
_WRITES_DEEP = 20_000
"""PyYAML takes three calls for each of the levels, of which a mutation makes 300 or some more."""


def _text_or_value(document: Any, suffix: str, random: Random) -> tuple[bytes, tuple[str, ...]]:
    """A damaged document in a file's form; names of keys that were touched."""
    if random.random() < 0.3:
        return damage_text(_written(document, suffix), random), ()
    changed, touched = mutate(document, random)
    names, new = ({str(path[-1]) for path in places(one)} for one in (document, changed))
    keys = (*touched, *names, *(name for name in new if len(name) > _STANDS_BY_CHANCE))
    return _written(changed, suffix).encode("utf-8", "surrogatepass"), keys


def _written(document: Any, suffix: str) -> str:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(_WRITES_DEEP)  # what reads it has Python's own limit
    try:
        if suffix in (".yaml", ".yml"):
            return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        return json.dumps(document, indent=1)
    finally:
        sys.setrecursionlimit(usual)


def _file(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def config(random: Random, folder: Path) -> Case:
    """A configuration as a tune reads it, for our runtime or DeepSpeed."""
    is_ours = random.random() < 0.6
    suffix = random.choice((".json", ".json", ".json", ".yaml", ".hjson"))
    document = SOUND_CONFIG if is_ours else DEEPSPEED_CONFIG
    data, touched = _text_or_value(document, suffix, random)
    name = f"broken{suffix}"
    path = _file(folder, name, data)
    script = _file(folder, "script.py", (SCRIPT if is_ours else DEEPSPEED_SCRIPT).encode())
    flags = ("--autotuning=tune", "--num_gpus=1", "--dry-run")
    return Case((*flags, script, "--config" if is_ours else "--deepspeed", path), name, touched)


@cache
def _journal() -> tuple[dict[str, Any], ...]:
    """Lines of a study that ended, as a journal has them."""
    header = {"format": FORMAT, "version": VERSION, "fingerprint": encode(PRINT)}
    started = {
        "started": {
            "name": "z0_gas1_tmbspg1", "number": 0, "attempt": "a", "host": "h", "pid": 7,
            "start_unix_s": 1.0, "before_s": 0.0,
        }
    }  # fmt: skip
    lines: list[dict[str, Any]] = [header, {"profiled": True}, started]
    for number, record in enumerate(_plain_records()):
        line = encode_record(record)
        lines.append({**line, "number": number})
    return tuple(json.loads(json.dumps(line)) for line in lines)


def _plain_records() -> tuple[Record, ...]:
    seen: dict[str, Record] = {}
    for record in answers_for_all(space(2)):
        seen.setdefault(record.trial.name, record)
    return tuple(r for name, r in seen.items() if not name.endswith("_again"))


def journal(random: Random, folder: Path) -> Case:
    """A journal, read by each verb that reads one."""
    lines = list(_journal())
    data: bytes
    if random.random() < 0.3:
        data = damage_text("".join(json.dumps(line) + "\n" for line in lines), random)
    else:
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(lines))
            lines[at] = mutate(lines[at], random)[0]
        if random.random() < 0.2:
            random.shuffle(lines)
        data = "".join(json.dumps(line) + "\n" for line in lines).encode("utf-8", "surrogatepass")
    results = folder / "results"
    (results / PROFILE).mkdir(parents=True, exist_ok=True)
    _file(results, "journal.jsonl", data)
    where = str(results)
    argv = random.choice(
        (
            ("show", where), ("show", where, "--json"), ("show", where, "--details"),
            ("show", where, "--format=csv"), ("show", where, "--format=md"),
            ("show", where, f"--html={folder / 'page.html'}"), ("compare", where, where),
            ("export", where, "--to=hf_trainer"),
            ("export", where, "--to=torchtitan"), ("resume", where),
        )
    )  # fmt: skip
    return Case(argv, "results")


@cache
def _table() -> tuple[dict[str, str], ...]:
    path = ROOT / "benchmarks" / "ground_truth" / "torchtitan.csv"
    return tuple(list(csv.DictReader(path.read_text().splitlines()))[:6])


def csv_table(random: Random, folder: Path) -> Case:
    """A table of measurements."""
    rows = [dict(row) for row in _table()]
    out = io.StringIO()
    if random.random() < 0.6:
        for _ in range(random.choice((1, 2, 4))):
            row = random.choice(rows)
            value = random.choice((*HOSTILE, *WORDS))
            row[random.choice(list(row))] = value if isinstance(value, str) else str(value)[:500]
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    text = out.getvalue()
    data = damage_text(text, random) if random.random() < 0.6 else text.encode("utf-8", "replace")
    path = _file(folder, "table.csv", data)
    argv = random.choice(
        (("validate", path), ("validate", path, "--json"),)
    )  # fmt: skip
    return Case(argv, "table.csv")


_TRAINED = ("--seq=1024", "--global-batch=64")


_WITH_TRANSFORMERS_S = 8.0
"""A type that only transformers knows takes its import and a model without memory."""


def hugging_face(random: Random, folder: Path) -> Case:
    """A model's config.json."""
    data, touched = _text_or_value(random.choice(HUGGING_FACE), ".json", random)
    path = _file(folder, "config.json", data)
    argv = random.choice(
        (
            ("fit", "--model", path, "--cluster=1x8xH100-SXM-80GB", *_TRAINED),
            ("fit", "--model", path, "--cluster=1x8xH100-SXM-80GB", *_TRAINED, "--json"),
            ("plan", "--model", path, "--cluster=1x2xH100-SXM-80GB", *_TRAINED),
        )
    )
    return Case(argv, "config.json", touched, longest_s=_WITH_TRANSFORMERS_S)


_FLAGS = ("--global-batch", "tp=2", "plan ranks")


def cluster(random: Random, folder: Path) -> Case:
    """A file that describes machines."""
    suffix = random.choice((".yaml", ".yaml", ".json"))
    data, touched = _text_or_value(CLUSTER, suffix, random)
    path = _file(folder, f"cluster{suffix}", data)
    verb = ("fit", "--tp=2") if random.random() < 0.9 else ("plan",)
    argv = (*verb, "--model=llama3.1-8b", "--cluster", path, *_TRAINED)
    return Case(argv, f"cluster{suffix}", touched, _FLAGS)


def hostfile(random: Random, folder: Path) -> Case:
    """A list of hosts and their slots."""
    hosts = "".join(f"worker-{n} slots={random.choice((1, 8))}\n" for n in range(4))
    path = _file(folder, "hosts", damage_text(f"# hosts\n{hosts}localhost slots=2\n", random))
    script = _file(folder, "script.py", SCRIPT.encode())
    config_path = _file(folder, "sound.json", json.dumps(SOUND_CONFIG).encode())
    filters = random.choice(
        ((), (), ("--include=worker-0:0",), ("--exclude=worker-1",), ("--num_nodes=1",))
    )
    alone = ("--no_ssh", "--node_rank=0")  # reaches no other host
    flags = ("--autotuning=tune", "--dry-run", *alone, f"--hostfile={path}", *filters)
    return Case(
        (*flags, script, "--config", config_path),
        "",
        ("hosts", "--include", "--exclude", "--num_nodes", "Host "),
    )


def hydra(random: Random, folder: Path) -> Case:
    """Overrides of NVIDIA's search, and files below a folder of the user's own."""
    words = [
        OVERRIDES[random.randrange(3)],
        *random.sample(OVERRIDES[3:], random.choice((0, 1, 3))),
    ]
    at = random.randrange(len(words))
    key, _, value = words[at].partition("=")
    hostile = random.choice((*HOSTILE, *WORDS))
    text = hostile if isinstance(hostile, str) else json.dumps(hostile)
    words[at] = random.choice(
        (
            f"{key}={text[:3000]}", f"{key}={text[:3000]}", f"{key}={value}{text[:40]}",
            damage_text(words[at], random).decode("utf-8", "surrogateescape"), f"{key}.x={value}",
        )
    )  # fmt: skip
    folders: tuple[str, ...] = ()
    if random.random() < 0.3:
        folders = _conf_folder(random, folder)
    keys = (word.partition("=")[0] for word in words)
    names = (*filter(None, keys), "conf", "key=value")
    return Case(("search", "--dry-run", "--top=1", *folders, *words), "", names)


def _conf_folder(random: Random, folder: Path) -> tuple[str, ...]:
    ours = ROOT / "tuning_spaces" / "conf"
    name = random.choice(("config.yaml", "search_config/gpt3/5b.yaml", "cluster/bcm.yaml"))
    for part in {"config.yaml", name}:
        path = folder / "conf" / part
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (ours / part).read_text()
        if part != name:
            path.write_text(text)
        elif random.random() < 0.5:
            path.write_bytes(damage_text(text, random))
        else:
            changed, _ = mutate(yaml.safe_load(text), random)
            path.write_bytes(_written(changed, ".yaml").encode("utf-8", "surrogatepass"))
    return ("--config-dir", str(folder / "conf"))


@cache
def _bases() -> tuple[Any, ...]:
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for family, size in (("gpt3", 5), ("llama", 8), ("t5", 3)):
            path = Path(folder) / f"{family}.yaml"
            asked = (f"--family={family}", f"--model-size={size}", "--gpus=64", "--tokens=300B")
            list(recommend((*asked, "--tflops-per-gpu=300", f"--base-config={path}")))
            made.append(yaml.safe_load(path.read_text()))
    return tuple(made)


def base(random: Random, folder: Path) -> Case:
    """A base configuration, exported or overlaid on another."""
    data, touched = _text_or_value(random.choice(_bases()), ".yaml", random)
    path = _file(folder, "base.yaml", data)
    to = random.choice(("nemo1", "nemo2", "megatron", "torchtitan", "torchtitan_module"))
    argv: tuple[str, ...] = ("export", path, f"--to={to}")
    if random.random() < 0.3:
        asked = ("--family=gpt3", "--model-size=5", "--gpus=64", "--tokens=300B")
        written = (f"--base-config={folder / 'out.yaml'}", "--custom-config", path)
        argv = ("recommend", *asked, "--tflops-per-gpu=300", *written)
    return Case(argv, "base.yaml", touched, ("300000000000",))


KINDS = (
    Kind("configurations", 10_000, config),
    Kind("journals", 1_000, journal),
    Kind("CSV tables", 1_000, csv_table),
    Kind("config.json", 1_000, hugging_face),
    Kind("cluster files", 1_000, cluster),
    Kind("hostfiles", 1_000, hostfile),
    Kind("hydra overrides", 1_000, hydra),
    Kind("base configurations", 1_000, base),
)
BY_COMMAND = 200
"""Configurations that the real command reads, too."""
