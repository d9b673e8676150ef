import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import parse_bytes, parse_request


def test_everything_after_the_script_belongs_to_the_script() -> None:
    request = parse_request(["--num_gpus", "2", "train.py", "--num_gpus", "7", "-q"])
    assert request.script_args == ("--num_gpus", "7", "-q")
    assert request.processes == 2


@pytest.mark.parametrize("flag", ["--num_gpus=2", "--num-gpus=2", "--num_accelerators=2"])
def test_dashes_and_underscores_are_equal_in_flag_names(flag: str) -> None:
    assert parse_request([flag, "train.py"]).processes == 2


def test_a_flag_takes_its_value_from_the_next_argument_or_after_an_equals_sign() -> None:
    spaced = parse_request(["--autotuning", "tune", "train.py"])
    joined = parse_request(["--autotuning=tune", "train.py"])
    assert spaced.autotuning == joined.autotuning == "tune"


def test_an_unknown_flag_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"--num_gpu; did you mean '--num_gpus'\?"):
        parse_request(["--num_gpu", "2", "train.py"])


@pytest.mark.parametrize(
    "argv",
    [
        ["--num_gpus", "0", "t.py"],
        ["--num_gpus", "two", "t.py"],
        ["--num_nodes", "2", "t.py"],
        ["--master_port", "70000", "t.py"],
        ["--autotuning", "fast", "t.py"],
        ["--memory-limit", "much", "t.py"],
        ["--trial-timeout", "-1", "t.py"],
        ["--module", "--no_python", "t"],
        ["--num_gpus"],
        [],
    ],
)
def test_a_command_line_that_means_nothing_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_request(argv)


def test_each_key_of_the_autotuning_section_is_a_flag() -> None:
    request = parse_request(["--tuner-type", "random", "--fast=false", "--overwrite", "t.py"])
    assert dict(request.overrides) == {
        "tuner_type": "random",
        "fast": "false",
        "overwrite": "true",
    }


def test_a_module_is_a_script_of_another_kind() -> None:
    assert parse_request(["--module", "pkg.train"]).kind == "module"


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5g", 1_500_000_000), ("1000", 1000)],
)
def test_sizes_are_decimal_unless_written_with_an_i(text: str, size: int) -> None:
    assert parse_bytes(text) == size
