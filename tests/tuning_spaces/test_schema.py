import json

from autoconf_launch.autotuner.space.settings import ALIASES, AutotuningSettings
from autoconf_launch.tuning_spaces.schema import schema_text, shipped_text


def test_the_shipped_schema_is_current() -> None:
    again = "python -m autoconf_launch.tuning_spaces.schema"
    assert json.loads(shipped_text()) == json.loads(schema_text()), f"run {again}"


def test_the_schema_has_every_key_and_no_other() -> None:
    schema = json.loads(shipped_text())
    assert schema["properties"].keys() == AutotuningSettings.model_fields.keys() | ALIASES.keys()
    assert schema["additionalProperties"] is False


def test_the_schema_has_the_defaults() -> None:
    properties = json.loads(shipped_text())["properties"]
    plain = AutotuningSettings().model_dump()
    assert {name: properties[name].get("default") for name in plain} == plain
