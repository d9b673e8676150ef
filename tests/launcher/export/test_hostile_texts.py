"""Text of others in files that are generated: it stays text."""

from __future__ import annotations

import ast
import shlex
from typing import Any

import pytest
import tomlkit
import yaml

from autoconf_launch.core import Candidate, ConfigError, Layout, Offload, RawConfig
from autoconf_launch.launcher.export import Optimum, export_base, export_optimum
from autoconf_launch.launcher.exporters import BASE_EXPORTERS, LAYOUT_EXPORTERS
from autoconf_launch.launcher.spelling import toml_of

from .test_base_export import base

CODE = 'x"""\n\'\nimport os; os.system("touch planted")\n[planted]\n--planted $(touch planted) `'
ONE_LINE = CODE.replace("\n", " ") + "\x1b[2J\x7f\u202e"


def python_words(text: str) -> set[str]:
    """Names that a Python text uses; it must be one."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("framework", LAYOUT_EXPORTERS)
@pytest.mark.parametrize("where", ["name", "value"])
def test_an_extra_of_others_stays_in_one_comment_or_value(framework: str, where: str) -> None:
    extra = (CODE, 1) if where == "name" else ("bucket_cap_mb", CODE)
    layout = Layout(data_parallel=2, zero_stage=2, offload=Offload.OPTIMIZER)
    candidate = Candidate(layout=layout, extras=(extra,))
    text = export_optimum(Optimum(name="z2", candidate=candidate), framework).text
    if framework in ("megatron", "hf_trainer"):
        assert "--planted" not in shlex.split(text, comments=True)
        return
    code = [line for line in text.splitlines() if not line.startswith(("#", "//"))]
    assert not any(line.startswith(("import os", "[planted]", "--planted")) for line in code)
    if framework == "nemo2":
        assert "os" not in python_words(text)


@pytest.mark.parametrize("framework", BASE_EXPORTERS)
@pytest.mark.parametrize(
    ("path", "says"),
    [
        (("model", "config", "vocab_size"), "vocab_size is"),
        (("trainer", "strategy", "virtual_pipeline_model_parallel_size"), "parallel_size is"),
        (("run", "name"), "The name is"),
        (("optim", "config", "lr"), "lr is"),
    ],
)
def test_a_base_configuration_with_code_for_a_value_is_refused(
    framework: str, path: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        export_base(base("llama").with_value(path, CODE), framework)


@pytest.mark.parametrize("framework", BASE_EXPORTERS)
@pytest.mark.parametrize("path", [("run", "name"), ("autoconf", "family")])
def test_a_name_of_others_stays_a_string(framework: str, path: tuple[str, ...]) -> None:
    name = CODE.replace("\n", " ")
    text = export_base(base("llama").with_value(path, name), framework).text
    if framework in ("nemo2", "torchtitan_module"):
        assert "os" not in python_words(text)
    elif framework == "nemo1":
        assert isinstance(yaml.safe_load(text), dict)
    elif framework == "torchtitan":
        assert "planted" not in toml(text)
    else:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert all(len(shlex.split(line)) <= 2 for line in lines)


def test_a_family_of_others_does_not_end_its_comment() -> None:
    text = export_base(base("llama").with_value(("autoconf", "family"), CODE), "nemo2").text
    assert "os" not in python_words(text)


@pytest.mark.parametrize("value", [ONE_LINE, CODE, "\U0001f600", "\x7f", float("inf"), 1, [CODE]])
def test_toml_reads_back_what_was_written(value: Any) -> None:
    document = {"a": {CODE: value, "plain-key": "x"}, "b c": {"d": True}}
    assert toml(toml_of(RawConfig(document))) == document


def toml(text: str) -> dict[str, Any]:
    return tomlkit.parse(text).unwrap()
