"""The ``autotuning`` section as a JSON Schema, for editors. Not: what checks it (settings).

``python -m autoconf_launch.tuning_spaces.schema`` writes it anew.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from autoconf_launch.autotuner.space import ALIASES, AutotuningSettings

SCHEMA = "autotuning.schema.json"


def schema_text() -> str:
    """The schema of the present settings, as the shipped file has it."""
    schema = AutotuningSettings.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        described = properties[name].get("description", "")
        about = f"Another name of {name}. {described}".strip()
        properties[alias] = {**properties[name], "description": about}
    return json.dumps(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2
    )


def shipped_text() -> str:
    """The schema as it is shipped."""
    return files(__package__).joinpath(SCHEMA).read_text("utf-8")


if __name__ == "__main__":
    Path(__file__).with_name(SCHEMA).write_text(f"{schema_text()}\n", "utf-8")
