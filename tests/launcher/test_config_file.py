import json
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.config_file import read_config, read_document


def read(tmp_path: Path, name: str, text: str) -> dict[str, object]:
    path = tmp_path / name
    path.write_text(text)
    return read_config(path).to_dict()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"zero_optimization": {"stage": 2}}'),
        ("c.json", '{"zero_optimization": {"stage": 2,},}'),
        ("c.hjson", "{\n  # why\n  zero_optimization: {stage: 2}\n}"),
        ("c.yaml", "zero_optimization:\n  stage: 2\n"),
    ],
)
def test_the_same_settings_can_be_written_in_json_hjson_and_yaml(
    tmp_path: Path, name: str, text: str
) -> None:
    assert read(tmp_path, name, text) == {"zero_optimization": {"stage": 2}}


def test_a_number_with_an_exponent_is_a_number_in_yaml_too(tmp_path: Path) -> None:
    assert read(tmp_path, "c.yaml", "size: 5e7") == {"size": 5e7}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.json", "this is no json", "cannot be read"),
        ("c.json", '{"a": 1, "a": 2}', "'a' is given twice"),
        ("c.json", "[1, 2]", "holds a list"),
        ("c.yaml", "a: [1, 2", "cannot be read"),
        ("c.yaml", "a: 2020-01-01", "not a JSON value"),
        ("c.hjson", "{a: {", "cannot be read"),
        ("c.hjson", "{a: 1 /*", r"malformed \(IndexError: string index out of range\)"),
        ("c.hjson", "{a: '''b'''}", r"malformed \(IndexError"),
        ("c.hjson", "{a: 1e999}", r"malformed \(OverflowError"),
        ("c.json", "{a: 1 /*", "Expecting property name"),
        ("c.yaml", "a: !!int ''", r"malformed \(IndexError"),
        ("c.yaml", "a: !!bool maybe", r"malformed \(KeyError"),
    ],
)
def test_a_malformed_file_is_named_with_its_defect(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, name, text)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": 1}',
        '{"a": {"b": [1, 2,],}\n',
        '{"a": {"b": "}, {"}, "c": {}',
        '{"a": {"b": "\\"}"}',
    ],
)
def test_a_last_brace_that_is_missing_is_supplied_with_a_warning(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    (warning,) = read_document(path).warnings
    assert warning == f"{path} lacks its last closing brace; it is read as if it were there."


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": {"c": 1}',
        '{"a": 1',
        '{"a": {"b": 1',
        '{"a": {"b": 1},',
        '{"a": foo}',
        '{"a": [{"b": 1}',
        '{"a": {"a": 1}, "b": {"c": 1, "c": 2}',
        '"{"',
        "}",
        "",
    ],
)
def test_nothing_else_is_supplied(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, "c.json", text)


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=4) | st.integers(), min_size=1))
def test_a_whole_file_is_read_as_it_stands(document: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.json"
        path.write_text(json.dumps({"a": document}))
        found = read_document(path)
    assert (found.config.to_dict(), found.warnings) == ({"a": document}, ())


@pytest.mark.parametrize("suffix", ["json", "hjson", "yaml"])
@given(text=st.text(alphabet="{}[]:,/*'\"!ainteE-+019. \n", max_size=12))
def test_any_text_is_a_document_or_a_configuration_error(suffix: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"c.{suffix}"
        path.write_text(text)
        with suppress(ConfigError):
            read_document(path)


def test_nested_yaml_aliases_cannot_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="aliases"):
        read(tmp_path, "c.yaml", "\n".join(lines))


def test_yaml_tags_build_no_objects(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, "c.yaml", "a: !!python/object/apply:os.getcwd []")


def test_a_missing_file_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "none.json")
