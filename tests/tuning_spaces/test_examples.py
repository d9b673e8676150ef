import json
from pathlib import Path

import hjson

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.dialects import BuiltinDialect
from autoconf_launch.launcher.script import ScriptSource, SpaceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def knobs(config: str, space: str | None = None) -> set[str]:
    """Further knobs that an example searches on 2 ranks."""
    document = RawConfig(json.loads((EXAMPLES / config).read_text()))
    file = None
    if space:
        file = SpaceFile(
            name=space, document=RawConfig(hjson.loads((EXAMPLES / space).read_text()))
        )
    source = ScriptSource(script_args=(), config=document, config_argument=None, space=file)
    user = BuiltinDialect().read(source, world_size=2)
    return {f"{choice.stages[0]}.{choice.knob}" for choice in user.choices if choice.stages}


def test_examples_search_the_knobs_that_they_show() -> None:
    assert knobs("01_pretrain_gpt/config_full.json") == {
        "0.bucket_cap_mb",
        "0.gradient_as_bucket_view",
        "2.blocks_per_unit",
        "2.forward_prefetch",
    }
    space = "02_edit_a_tuning_space/space.hjson"
    assert knobs("01_pretrain_gpt/config.json", space) == {
        "0.bucket_cap_mb",
        "1.bucket_cap_mb",
        "2.blocks_per_unit",
        "3.blocks_per_unit",
    }
