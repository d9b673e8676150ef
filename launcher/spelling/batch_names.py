"""Names that mean a batch of training, and batches that a source sets by itself.

Sources: each tool's documentation of its environment variables.
"""

from __future__ import annotations

import re

from ..script import ScriptSource, loader_batches

_OF_DATA = re.compile(r"(data)?(loader|set)$|data$|d[sl]$")
"""End of ``testloader``, ``valset`` and ``evalds``."""
_PART = re.compile(r"[A-Z]*[a-z0-9]+|[A-Z]+")
_SAYS_BATCH = {"micro", "microbatch", "batch", "batchsize", "bs", "bsz", "mbs", "mbsz"}
_BESIDE_BATCH = {
    *("micro", "mini", "size", "sz", "train", "training", "local", "per", "each"),
    *("device", "gpu", "rank", "worker", "process", "replica", "samples", "sequences"),
}
"""Parts that leave it a rank's batch, unlike ``n``, ``norm``, ``first`` or ``total``."""
_SILENT = {
    "WANDB_MODE": "disabled",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "COMET_MODE": "DISABLED",
    "COMET_START_ONLINE": "0",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
    "DVC_STUDIO_OFFLINE": "true",
    "CODECARBON_SAVE_TO_API": "false",
}
"""TensorBoard has no such variable: the probe redirects its files to the trial's folder."""
TRACKER_FOLDERS = {
    "MLFLOW_TRACKING_URI": "file:{folder}/mlruns",
    "TRACKIO_DIR": "{folder}/trackio",
}
"""Variables of trackers that point into the trial's folder."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MICRO_BATCH_NAMES = _words(
    "micro_batch_size micro_batch train_micro_batch_size_per_gpu micro_batch_size_per_gpu "
    "per_device_train_batch_size per_device_batch_size per_gpu_train_batch_size "
    "per_gpu_batch_size batch_size_per_gpu batch_size_per_device device_batch_size "
    "local_batch_size device_train_microbatch_size microbatch_size samples_per_gpu "
    "train_batch_size batch_size_train training_batch_size batch_size batch_sz "
    "mini_batch_size train_batch train_bs max_sentences batch bsz mbs bs"
)
"""Last parts of names, the most specific first; ``-``, ``_`` and capitals make no difference."""
ACCUMULATION_NAMES = _words(
    "gradient_accumulation_steps gradient_accumulation grad_accumulation_steps "
    "grad_accum_steps grad_accumulation grad_accum accumulation_steps accumulate_grad_batches "
    "accum_count accum_steps accum_iter accum_freq update_freq"
)
DERIVED_ACCUMULATION = _words(
    "gradient_accumulation_iters grad_accumulation_iters grad_accum_iters accumulation_iters "
    "accum_iters grad_acc_steps micro_steps num_micro_steps num_microbatches accumulation "
    "grad_acc"
)
"""More names of values that scripts compute by a division, and rarely take as an argument."""
ELSEWHERE = _words(
    "eval evaluate evaluation val valid validate validation dev test predict infer inference "
    "generate generation sampling"
)
"""Parts of a dotted name that show another batch than training's."""
EVALUATE_EVERY = _words(
    "eval_interval eval_every eval_freq eval_steps eval_every_n_steps evaluate_every "
    "evaluation_interval evaluation_steps val_interval val_every val_freq val_check_interval "
    "valid_interval validate_every validate_interval validation_interval"
)
"""Steps from one evaluation to the next."""
SAVE_EVERY_NAMES = _words(
    "checkpointing_steps checkpoint_interval checkpoint_every checkpoint_freq "
    "checkpoint_steps ckpt_interval ckpt_every ckpt_freq save_steps save_interval save_every "
    "save_freq save_every_n_steps"
)
"""Steps from one checkpoint to the next."""


def name_key(name: str) -> str:
    """``batchSize``, ``batch_size`` and ``BATCH_SIZE`` are one name."""
    return name.replace("-", "_").replace("_", "").lower()


def is_of_batch(
    name: str, known: tuple[str, ...] = (*MICRO_BATCH_NAMES, *ACCUMULATION_NAMES)
) -> bool:
    """True if a name commonly means the micro-batch or the accumulation."""
    return name_key(name) in set(map(name_key, known))


def may_derive_accumulation(source: ScriptSource) -> bool:
    """True if the script or any of its modules computes its accumulation by a division.

    Then a total of samples or tokens stays when the micro-batch changes. A source that cannot be
    read completely may do so.
    """
    if not source.text or not source.is_whole:
        return True
    facts = source.all_facts
    named = (*ACCUMULATION_NAMES, *DERIVED_ACCUMULATION)
    quotients = {name for each in facts for name in each.quotients}
    made = any(is_of_batch(name, named) or is_accumulation(name) for name in quotients)
    return made or any(
        "batch" in total.lower() and total != micro and is_of_batch(micro, MICRO_BATCH_NAMES)
        for each in facts
        for total, micro in each.ratios
    )


def name_parts(name: str) -> tuple[str, ...]:
    """``val``, ``loader`` and ``batch`` of ``valLoader.batch`` and of ``val_loader-batch``."""
    return tuple(part.lower() for part in _PART.findall(name))


def is_elsewhere(name: str) -> bool:
    """True if a part of a name shows another batch than training's."""
    parts = name_parts(name)
    return any(_OF_DATA.sub("", part) in ELSEWHERE for part in parts)


def is_accumulation(name: str) -> bool:
    """True if a name means accumulating, such as ``accumulate_every`` or ``batch_multiplier``."""
    parts = name_parts(name)
    multiplies = {"batch", "multiplier"} <= {*parts}
    found = multiplies or any(part.startswith("accum") for part in parts)
    return found and not is_elsewhere(name)


def is_micro_batch(name: str) -> bool:
    """True if all parts of a name mean the micro-batch, as in ``micro_bsz``."""
    parts = {*name_parts(name)}
    return bool(parts & _SAYS_BATCH) and parts <= _SAYS_BATCH | _BESIDE_BATCH


def batch_in_source(source: ScriptSource) -> int | None:
    """The batch that the source gives its training DataLoader, or a literal named as a batch.

    None if there is none, or several numbers of which none is surely training's.
    """
    loaders = loader_batches(source.text)
    found = [
        (each.names, each.value) for each in loaders if not any(map(is_elsewhere, each.names))
    ]
    if not found:
        elsewhere = {each.value for each in loaders}
        found = [
            ((name,), value if type(value) is int else None)
            for name, value in source.facts.literals
            if is_of_batch(name, MICRO_BATCH_NAMES) and value not in elsewhere
        ]
    of_training = [value for names, value in found if any(map(_is_of_training, names))]
    numbers = {*(of_training or (value for _, value in found))}
    return numbers.pop() if len(numbers) == 1 else None


def _is_of_training(name: str) -> bool:
    return any(part.startswith("train") for part in name_parts(name))


def silent_variables(folder: str) -> tuple[tuple[str, str], ...]:
    """Variables that keep a trial's reports in this folder."""
    here = ((name, value.format(folder=folder)) for name, value in TRACKER_FOLDERS.items())
    return (*_SILENT.items(), *here)
