"""The configuration blocks of the DeepSpeed Autotuning page, as they are printed there."""

from __future__ import annotations

ONE_MAPPING = """{
"autotuning": {
"enabled": true,
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
}
}
"""
TWO_MAPPINGS = """{
"autotuning": {
"enabled": true,
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
"gradient_accumulation_steps ": "--gradient_accumulation_steps"
}
}
"""
STAGES_2_AND_3 = """{
"zero_optimization": {
"stage": [2, 3]
}
}
"""
MINIMUM_OF_4 = """{
"train_micro_batch_size_per_gpu": 4,
"autotuning": {
"enabled": true,
},
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
}
}
"""
AUTO = """{
"train_micro_batch_size_per_gpu": "auto",
"gradient_accumulation_steps": "auto",
"autotuning": {
"enabled": true,
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
"gradient_accumulation_steps ": "--gradient_accumulation_steps"
}
}
}
"""
MAXIMUM = """{
"autotuning": {
"enabled": true,
"max_train_batch_size": 1024,
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
}
}
}
"""
LISTED = """{
"train_micro_batch_size_per_gpu": [1, 4, 16],
"gradient_accumulation_steps": 2
}
"""
FIXED_AT_4 = """{
"train_micro_batch_size_per_gpu": [4],
}
"""
SPACE_OF_STAGE_1 = """{
"zero_optimization": {
"stage": 1,
"reduce_bucket_size": [5e7,
5e8,
1e9],
"allgather_bucket_size": [5e7,
5e8,
1e9],
}
}
"""
OVERRIDE = """{
"zero_optimization": {
"stage": 1,
"reduce_bucket_size": [5e7, 5e8],
"allgather_bucket_size": 5e8,
}
}
"""
DEFAULTS = """{
"autotuning": {
"enabled": false,
"results_dir": null,
"exps_dir": null,
"overwrite": false,
"metric": "throughput",
"start_profile_step": 3,
"end_profile_step": 5,
"fast": true,
"max_train_batch_size": null,
"mp_size": 1,
"num_tuning_micro_batch_sizes": 3,
"tuner_type": "model_based",
"tuner_early_stopping": 5,
"tuner_num_trials": 50,
"arg_mappings": null
}
}
"""
HUGGING_FACE = """{
"train_micro_batch_size_per_gpu": "auto",
"gradient_accumulation_steps": "auto",
"autotuning": {
"enabled": true,
"arg_mappings": {
"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
"gradient_accumulation_steps": "--gradient_accumulation_steps"
},
}
}
"""
BLOCKS = {
    "one_mapping": ONE_MAPPING,
    "two_mappings": TWO_MAPPINGS,
    "stages_2_and_3": STAGES_2_AND_3,
    "minimum_of_4": MINIMUM_OF_4,
    "auto": AUTO,
    "maximum": MAXIMUM,
    "listed": LISTED,
    "fixed_at_4": FIXED_AT_4,
    "space_of_stage_1": SPACE_OF_STAGE_1,
    "override": OVERRIDE,
    "defaults": DEFAULTS,
    "hugging_face": HUGGING_FACE,
}
