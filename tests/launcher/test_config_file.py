import json
import os
import tempfile
import time
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


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.json", "this is no json", "cannot be read"),
        ("c.json", '{"a": 1, "a": 2}', "'a' is given twice"),
        ("c.json", "[1, 2]", "holds a list"),
        ("c.yaml", "", "holds nothing, but must hold an object"),
        ("c.yaml", "a: 1\n1: 2", "has key 1, which is not text; quote it"),
        ("c.yaml", "~: 2", "has key None, which is not text"),
        ("c.yaml", '"a\\0b": 2', "has a NUL character"),
        ("c.json", '{"a": {"\\u0000": 2}}', "has a NUL character"),
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
    ("text", "is_supplied"),
    [
        *(
            (text, True)
            for text in (
                '{"a": {"b": 1}',
                '{"a": {"b": [1, 2,],}\n',
                '{"a": {"b": "}, {"}, "c": {}',
                '{"a": {"b": "\\"}"}',
            )
        ),
        *(
            (text, False)
            for text in (
                *('{"a": {"b": {"c": 1}', '{"a": 1', '{"a": {"b": 1', '{"a": {"b": 1},'),
                *('{"a": foo}', '{"a": [{"b": 1}', '{"a": {"a": 1}, "b": {"c": 1, "c": 2}'),
                *('"{"', "}", ""),
            )
        ),
    ],
)
def test_a_last_brace_that_is_missing_is_supplied_with_a_warning_and_nothing_else(
    tmp_path: Path, text: str, is_supplied: bool
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    if is_supplied:
        (warning,) = read_document(path).warnings
        expected = f"{path} lacks its last closing brace; it is read as if it were there."
        assert warning == expected
    else:
        with pytest.raises(ConfigError):
            read_config(path)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("c.yaml", "size: 5e7", {"size": 5e7}),
        ("c.json", f'{{"model_max_length": {int(1e30)}}}', {"model_max_length": int(1e30)}),
        (
            "c.yaml",
            "a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\nt: '1:30'\nu: 00:12",
            {"a": {"x": 1}, "b": {"x": 2}, "t": "1:30", "u": "00:12"},
        ),
    ],
)
def test_what_frameworks_write_is_read_as_they_read_it(
    tmp_path: Path, name: str, text: str, found: dict[str, object]
) -> None:
    assert read(tmp_path, name, text) == found


ALIASES = "\n".join(
    [
        "a0: &a0 [1,1,1,1,1,1,1,1,1]",
        *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)),
    ]
)


@pytest.mark.parametrize(
    ("text", "says"),
    [(ALIASES, "aliases"), ("a: !!python/object/apply:os.getcwd []", "c.yaml"), (None, "No such")],
)
def test_yaml_fills_no_memory_builds_no_objects_and_must_exist(
    tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_config(tmp_path / "c.yaml")


TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=4)
WHOLE = st.integers(-(2**63), 2**63)


@given(st.dictionaries(TEXTS, TEXTS | WHOLE, min_size=1))
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


@pytest.mark.parametrize("suffix", ["json", "hjson", "yaml"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (f"{'[' * 300}1{']' * 300}", "nested more than 64 deep"),
        (f"{'[' * 100_000}1{']' * 100_000}", "nested more than 64 deep"),
        ("9" * 30, "theirs.key is a whole number beyond"),
        ("9" * 5000, "theirs.key is a whole number beyond"),
        ('"a\\u0000b"', "theirs.key is .* NUL"),
        ('[1, "a\\u0000b"]', r"theirs.key\[\] is .* NUL"),
    ],
)
def test_a_value_that_nobody_means_is_refused_with_its_key(
    tmp_path: Path, suffix: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, f"c.{suffix}", f'{{"theirs": {{"key": {value}}}}}')
    assert len(str(caught.value)) - len(str(tmp_path)) < 300


@pytest.mark.parametrize(("suffix", "nan"), [("json", "NaN"), ("yaml", ".nan")])
def test_nan_of_any_section_is_refused_and_infinity_is_not(
    tmp_path: Path, suffix: str, nan: str
) -> None:
    infinity = "Infinity" if suffix == "json" else ".inf"
    with pytest.raises(ConfigError, match=r"theirs\.key is NaN"):
        read(tmp_path, f"c.{suffix}", f'{{"theirs": {{"key": {nan}}}}}')
    assert read(tmp_path, f"c.{suffix}", f'{{"key": {infinity}}}') == {"key": float("inf")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' is given twice"),
        ("s:\n  a: 1\n  a: 1", "key 'a' is given twice"),
        ("batch: 1:30", "batch is 1:30, which YAML 1.1 reads as a number to base 60"),
        ("s: {time: 1:30:00.5}", "time is 1:30:00.5, which"),
        ("times: [8, 1:30]", "times is 1:30, which"),
    ],
)
def test_what_yaml_would_read_otherwise_than_it_looks_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, "c.yaml", text)


def test_three_megabytes_of_yaml_are_refused_in_seconds(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with pytest.raises(ConfigError, match="more than 100000 values"):
        read(tmp_path, "c.yaml", "rows:\n" + "- {a: 1, b: [1, 2, 3], c: text}\n" * 100_000)
    assert time.monotonic() - start_s < 10.0


@pytest.mark.parametrize("name", ["c.json", "c.yaml", "c.hjson"])
def test_a_pipe_a_folder_and_a_device_are_no_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    (tmp_path / f"folder.{name}").mkdir()
    (tmp_path / f"device.{name}").symlink_to("/dev/zero")
    for one in (path, tmp_path / f"folder.{name}", tmp_path / f"device.{name}"):
        with pytest.raises(ConfigError, match=r"(it is not a regular file|Is a directory)"):
            read_config(one)
