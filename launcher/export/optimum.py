"""An optimum as the file or the arguments of each framework."""

from __future__ import annotations

import yaml

from autoconf_launch.core import (
    OPTIMIZERS,
    RUNTIME_KNOBS,
    SPELLED,
    Offload,
    Precision,
    Recompute,
)
from autoconf_launch.core import config_keys as keys

from ..dialects import ZERO_KEYS, AccelerateDialect, HfTrainerDialect, document_of
from ..dialects import hf_deepspeed as hf_names
from ..spelling import (
    find_argument,
    set_argument,
)
from .page import HALVES, Exported, Optimum, Page, argument_lines, write_extras, write_table

_DATALOADER = "is the script's own: give it to the DataLoader"
_CHECKPOINT_CALL = "turn on the model's own checkpointing; DeepSpeed's section only shapes it"
_OFFLOAD = {
    Offload.OPTIMIZER: ("offload_optimizer",),
    Offload.PARAMETERS: ("offload_optimizer", "offload_param"),
}


def hf_trainer(optimum: Optimum) -> Exported:
    """Arguments of TrainingArguments, one on each line."""
    page = Page(optimum)
    only_deepspeed = optimum.layout.zero_stage == 1
    if only_deepspeed:
        page.cannot("zero_stage", "only DeepSpeed has it: export --to deepspeed and pass its file")
    but = ("zero_stage",) if only_deepspeed else ()
    inputs = write_table(HfTrainerDialect(), page, but=but)
    half = (f"--{optimum.precision.value}",) if optimum.precision in HALVES else ()
    return argument_lines((*_with_offload(inputs.arguments, page), *half), page)


def _with_offload(arguments: tuple[str, ...], page: Page) -> tuple[str, ...]:
    """FSDP keeps weights on the host by one more word of ``--fsdp``."""
    given = find_argument(arguments, (hf_names.FSDP,))
    if page.optimum.layout.offload is not Offload.PARAMETERS or given is None:
        return arguments
    page.mark_done("offload")
    return set_argument(arguments, hf_names.FSDP, f"{given.value} {hf_names.FSDP_OFFLOAD}")


_ONE_RANK, _SEVERAL = "NO", "MULTI_GPU"


def accelerate(optimum: Optimum) -> Exported:
    """The file of ``accelerate config``."""
    page, layout = Page(optimum), optimum.layout
    several = layout.world_size > 1
    kind = {1: "DEEPSPEED", 2: "FSDP", 3: "FSDP"}.get(
        layout.zero_stage, _SEVERAL if several else _ONE_RANK
    )
    page.say(("compute_environment",), "LOCAL_MACHINE")
    page.say(("distributed_type",), kind, "zero_stage")
    page.say(("num_machines",), optimum.nodes)
    page.say(("num_processes",), layout.world_size)
    half = optimum.precision in HALVES
    page.say(("mixed_precision",), optimum.precision.value if half and optimum.precision else "no")
    _say_sharding(page, kind)
    _say_degrees(page)
    for name, word in write_extras(AccelerateDialect(), page).environment:
        page.say(("dynamo_config", name.removeprefix("ACCELERATE_").lower()), word)
    page.cannot("micro_batch", _DATALOADER)
    return _yaml(page)


def lightning(optimum: Optimum) -> Exported:
    """The ``trainer`` section of a LightningCLI configuration."""
    page, layout = Page(optimum), optimum.layout
    page.say(("trainer", "num_nodes"), optimum.nodes)
    page.say(("trainer", "devices"), optimum.ranks_per_node)
    page.say(("trainer", "accumulate_grad_batches"), layout.accumulation, "accumulation")
    if optimum.precision in HALVES:
        mixed = {Precision.BF16: "bf16-mixed", Precision.FP16: "16-mixed"}
        page.say(("trainer", "precision"), mixed[optimum.precision])
    strategy = ("trainer", "strategy")
    if layout.tensor_parallel > 1:
        page.say((*strategy, "class_path"), _strategy("ModelParallelStrategy"))
        arguments = (*strategy, "init_args")
        page.say((*arguments, "data_parallel_size"), layout.data_parallel)
        page.say((*arguments, "tensor_parallel_size"), layout.tensor_parallel, "tensor_parallel")
    elif layout.zero_stage in (0, 1):
        name = "deepspeed_stage_1" if layout.zero_stage else "ddp"
        page.say(strategy, name, "zero_stage")
    else:
        page.say((*strategy, "class_path"), _strategy("FSDPStrategy"), "zero_stage")
        sharding = "FULL_SHARD" if layout.zero_stage == 3 else "SHARD_GRAD_OP"
        page.say((*strategy, "init_args", "sharding_strategy"), sharding)
        if layout.offload is Offload.PARAMETERS:
            page.say((*strategy, "init_args", "cpu_offload"), True, "offload")
    page.cannot("micro_batch", _DATALOADER)
    if layout.recompute is not Recompute.NONE:
        page.cannot("recompute", "wrap the blocks in configure_model")
    return _yaml(page)


def _say_sharding(page: Page, kind: str) -> None:
    layout = page.optimum.layout
    offloads = layout.offload is not Offload.NONE
    if kind == "DEEPSPEED":
        section = ("deepspeed_config",)
        page.say((*section, "zero_stage"), layout.zero_stage)
        page.say((*section, "gradient_accumulation_steps"), layout.accumulation, "accumulation")
        if offloads:
            page.say((*section, "offload_optimizer_device"), "cpu", "offload")
        return
    if kind == "FSDP":
        section = ("fsdp_config",)
        page.say((*section, "fsdp_version"), 2)
        page.say((*section, "fsdp_reshard_after_forward"), layout.zero_stage == 3)
        page.say((*section, "fsdp_auto_wrap_policy"), "TRANSFORMER_BASED_WRAP")
        if layout.recompute is Recompute.FULL:
            page.say((*section, "fsdp_activation_checkpointing"), True, "recompute")
        if layout.offload is Offload.PARAMETERS:
            page.say((*section, "fsdp_offload_params"), True, "offload")
    page.cannot("accumulation", "export ACCELERATE_GRADIENT_ACCUMULATION_STEPS with this value")


def _say_degrees(page: Page) -> None:
    layout = page.optimum.layout
    degrees = {"tensor_parallel": "tp_size", "context_parallel": "cp_size"}
    if layout.tensor_parallel * layout.context_parallel == 1:
        return
    section = "parallelism_config"
    sharded = layout.zero_stage > 1
    page.say((section, f"{section}_dp_replicate_size"), 1 if sharded else layout.data_parallel)
    page.say((section, f"{section}_dp_shard_size"), layout.data_parallel if sharded else 1)
    for knob, key in degrees.items():
        page.say((section, f"{section}_{key}"), getattr(layout, knob), knob)


def _strategy(name: str) -> str:
    return f"lightning.pytorch.strategies.{name}"


def _yaml(page: Page) -> Exported:
    return page.export(yaml.safe_dump(page.document.to_dict(), sort_keys=False), ".yaml")


def deepspeed(optimum: Optimum) -> Exported:
    """A JSON document; DeepSpeed reads it as hjson, which allows the comments."""
    page, layout = Page(optimum), optimum.layout
    _say_document(page)
    for section in _OFFLOAD.get(layout.offload, ()):
        page.say((*keys.ZERO, section, "device"), "cpu", "offload")
    for name, value in optimum.candidate.extras:
        if name.split(".")[0] in ZERO_KEYS:
            page.say((*keys.ZERO, *name.split(".")), value, name)
    if layout.recompute is not Recompute.NONE:
        page.cannot("recompute", _CHECKPOINT_CALL)
    return page.export(page.document.to_json() + "\n", ".json", mark="//")


def native(optimum: Optimum) -> Exported:
    """A JSON document for a script on our own runtime."""
    page = Page(optimum)
    _say_document(page)
    page.document = document_of(page.document, optimum.candidate)
    page.mark_done(*SPELLED, *RUNTIME_KNOBS)
    kind = next((k for k in OPTIMIZERS if k.lower() == optimum.optimizer), None)
    if kind is not None:
        page.say((*keys.OPTIMIZER, "type"), kind)
    return page.export(page.document.to_json() + "\n", ".json", mark="//")


def _say_document(page: Page) -> None:
    """Batch, ZeRO stage and precision, spelled alike by DeepSpeed and our runtime."""
    layout, precision = page.optimum.layout, page.optimum.precision
    page.say(keys.TRAIN_BATCH_SIZE, layout.global_batch)
    page.say(keys.MICRO_BATCH, layout.micro_batch, "micro_batch")
    page.say(keys.ACCUMULATION, layout.accumulation, "accumulation")
    page.say(keys.ZERO_STAGE, layout.zero_stage, "zero_stage")
    if precision in HALVES:
        page.say((precision.value, "enabled"), value=True)
