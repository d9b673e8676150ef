from typing import Any

import pytest

from autoconf_launch.autotuner.space import AutotuningSettings, parse_settings
from autoconf_launch.core import ConfigError, Grade, ModelSpec

from ...rows import some


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"tuner_num_trial": 3}, r"autotuning.tuner_num_trial is unknown; did you mean"),
        ({"metric": "speed"}, "autotuning.metric is 'speed'"),
        ({"tuner_num_trials": 0}, "autotuning.tuner_num_trials is 0: "),
        ({"start_profile_step": 9}, "end_profile_step is 5, but must be at least"),
        ({"start_step": 3, "start_profile_step": 4}, "another name of the same setting"),
        (
            {"max_train_micro_batch_size_per_gpu": 2, "min_train_micro_batch_size_per_gpu": 3},
            "max_train_micro_batch_size_per_gpu is 2, but must be at least",
        ),
        ({"arg_mappings": {"a": 3}}, r"arg_mappings.a is 3"),
        ({"arg_mappings": 3}, "autotuning.arg_mappings is 3"),
        ({"model_info": {"hidden_size": 8}}, r"autotuning.model_info: num_params is missing"),
        ({"model_info": {"num_parms": 8}}, r"num_parms is unknown; did you mean 'num_params'\?$"),
        ({"model_info": {"num_params": 0}}, r"autotuning.model_info.num_params is 0"),
        ({"model_info": "8"}, "autotuning.model_info"),
        ({"model_info": "{"}, "it is not JSON"),
        (
            {"model_info": {"num_params": 8, "trainable_num_params": 9}},
            r"trainable_num_params is 9: it must be at most num_params = 8",
        ),
        ({"model_info": {"num_params": 8}, "metric": "FLOPS"}, "says nothing of FLOPs"),
    ],
)
def test_what_the_section_cannot_mean_is_refused_with_its_key(
    section: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_settings(section)


def test_flags_give_text() -> None:
    settings = parse_settings({"tuner_num_trials": "7", "fast": "false", "metric": "latency"})
    assert (settings.tuner_num_trials, settings.fast, settings.metric) == (7, False, "latency")
    assert parse_settings({"model_info": '{"num_params": 5}'}).known_model() == know(num_params=5)


def know(**info: Any) -> ModelSpec:
    return some(parse_settings({"model_info": info}).known_model())


def test_a_model_is_known_as_far_as_its_info_says() -> None:
    assert AutotuningSettings().known_model() is None
    assert parse_settings({"model_info": {"profile": True}}).known_model() is None
    assert know(num_params=1000).grade is Grade.OPAQUE
    spec = know(num_params=1000, trainable_num_params=100, activation_mem_per_gpu=77, num_layers=7)
    assert spec.grade is Grade.ARCHITECTURE
    assert (spec.parameters, spec.trainable_parameters) == (1000, 100)
    assert (spec.activation_bytes_per_sample, spec.layers) == (77, 7)
