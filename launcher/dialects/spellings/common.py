"""Names that scripts of all kinds use for the batch and for pauses. Not: a framework's own."""

from __future__ import annotations

MICRO_BATCH = (
    "micro_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size_per_gpu",
    "per_device_train_batch_size",
    "per_device_batch_size",
    "per_gpu_train_batch_size",
    "per_gpu_batch_size",
    "batch_size_per_gpu",
    "batch_size_per_device",
    "device_batch_size",
    "local_batch_size",
    "device_train_microbatch_size",
    "microbatch_size",
    "samples_per_gpu",
    "train_batch_size",
    "batch_size_train",
    "training_batch_size",
    "batch_size",
    "batch_sz",
    "mini_batch_size",
    "train_batch",
    "train_bs",
    "max_sentences",
    "batch",
    "bsz",
    "mbs",
    "bs",
)
"""Last parts of names, the most telling first; ``-``, ``_`` and capitals make no difference."""
ACCUMULATION = (
    "gradient_accumulation_steps",
    "gradient_accumulation",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "grad_accumulation",
    "grad_accum",
    "accumulation_steps",
    "accumulate_grad_batches",
    "accum_steps",
    "accum_iter",
    "accum_freq",
    "update_freq",
)
DERIVED_ACCUMULATION = (
    "gradient_accumulation_iters",
    "grad_accumulation_iters",
    "grad_accum_iters",
    "accumulation_iters",
    "accum_iters",
    "grad_acc_steps",
    "micro_steps",
    "num_micro_steps",
    "num_microbatches",
    "accumulation",
    "grad_acc",
)
"""Further names of what scripts make by a division, and rarely take as an argument."""
ELSEWHERE = ("eval", "evaluation", "val", "valid", "validation", "test", "predict", "infer")
"""Parts of a dotted name that make it another batch than that of training."""
EVALUATE_EVERY = (
    "eval_interval",
    "eval_every",
    "eval_freq",
    "eval_steps",
    "eval_every_n_steps",
    "evaluate_every",
    "evaluation_interval",
    "evaluation_steps",
    "val_interval",
    "val_every",
    "val_freq",
    "val_check_interval",
    "valid_interval",
    "validate_every",
    "validate_interval",
    "validation_interval",
)
"""Steps from one evaluation to the next."""
SAVE_EVERY = (
    "checkpointing_steps",
    "checkpoint_interval",
    "checkpoint_every",
    "checkpoint_freq",
    "checkpoint_steps",
    "ckpt_interval",
    "ckpt_every",
    "ckpt_freq",
    "save_steps",
    "save_interval",
    "save_every",
    "save_freq",
    "save_every_n_steps",
)
"""The same of checkpoints."""
