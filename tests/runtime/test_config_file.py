from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, Layout, RawConfig, ResolvedConfig
from autoconf_launch.runtime.engine.engine import read_engine_config

DOCUMENT = {"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}}


def written(folder: Path, text: str) -> Path:
    path = folder / "config.json"
    path.write_text(text)
    return path


def test_a_path_a_mapping_and_a_document_mean_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, RawConfig(DOCUMENT).to_json())
    sources = (path, str(path), DOCUMENT, RawConfig(DOCUMENT))
    assert len({read_engine_config(source, world_size=2) for source in sources}) == 1


def test_a_resolved_configuration_is_taken_as_it_is() -> None:
    config = ResolvedConfig(layout=Layout(data_parallel=2))
    assert read_engine_config(config, world_size=2) is config


def test_a_configuration_resolved_for_other_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="for 2 ranks, but 4 run"):
        read_engine_config(ResolvedConfig(layout=Layout(data_parallel=2)), world_size=4)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json: No such file"):
        read_engine_config(tmp_path / "absent.json", world_size=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{'a': 1}", "line 1 column 2"),
        ('{"a": 1,}', "not strict JSON"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("[1]", "must be one object"),
    ],
)
def test_what_is_no_strict_json_says_where_and_what_to_do(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_engine_config(written(tmp_path, text), world_size=1)


def test_infinity_which_the_launcher_writes_is_read(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "mine": [Infinity, -Infinity]}'
    assert read_engine_config(written(tmp_path, text), world_size=1).layout.micro_batch == 1


def test_an_open_value_points_to_the_launcher() -> None:
    with pytest.raises(ConfigError, match="start the script with it"):
        read_engine_config({"train_micro_batch_size_per_gpu": "auto"}, world_size=1)
