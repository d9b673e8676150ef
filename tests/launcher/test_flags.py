import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import EFFORTS
from autoconf_launch.autotuner.space import parse_settings
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked.units import BYTES
from autoconf_launch.launcher.flags import (
    REFUSED,
    launch_flags,
    parse_request,
    require_use,
    typed_flags,
)
from autoconf_launch.launcher.request import (
    WITHOUT_EFFECT,
    CoreBinding,
    HostChoice,
    LaunchRequest,
    Rendezvous,
)
from autoconf_launch.launcher.tuning import TimeBudget, search_limits


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "--num_gpus 2 train.py --num_gpus 7 -q",
            {"processes": 2, "script_args": ("--num_gpus", "7", "-q")},
        ),
        ("--num-gpus=2 t.py", {"processes": 2}),
        ("--num_accelerators=2 t.py", {"processes": 2}),
        *(
            (f"--nproc-per-node={word} t.py", {"processes": word})
            for word in ("gpu", "cpu", "auto")
        ),
        ("--autotuning tune t.py", {"autotuning": "tune"}),
        ("--autotuning=tune t.py", {"autotuning": "tune"}),
        ("--module pkg.train", {"kind": "module"}),
        ("-m pkg.train", {"kind": "module"}),
        (
            "-H hosts -i=worker-0:1 t.py",
            {"hosts": HostChoice(hostfile="hosts", include="worker-0:1")},
        ),
        (
            "--num_gpus -1 --num_nodes -1 --node_rank=-1 --enable_each_rank_log None --include= t",
            {"processes": None, "hosts": HostChoice(), "rank_log_folder": None},
        ),
        (
            "--nnodes=2:2 --nproc_per_node=4 --node-rank 1 --rdzv-backend c10d --rdzv-id run7 "
            "--rdzv-endpoint=10.0.0.1:29400 t.py",
            {
                "processes": 4,
                "hosts": HostChoice(nodes=2, node_rank=1),
                "rendezvous": Rendezvous(address="10.0.0.1", port=29400, run_id="run7"),
            },
        ),
        (
            "--rdzv_endpoint [fe80::1]:29400 t.py",
            {"rendezvous": Rendezvous(address="fe80::1", port=29400)},
        ),
        ("--enable_each_rank_log logs t.py", {"rank_log_folder": "logs"}),
        ("--log-dir logs -r 3 t.py", {"rank_log_folder": "logs"}),
        ("--bind_core_list 0,2-4 t.py", {"binding": CoreBinding(cores=(0, 2, 3, 4))}),
        ("--good-enough=1% t.py", {"good_enough": 0.01, "soak_steps": None}),
        ("--soak-steps=0 t.py", {"soak_steps": 0}),
    ],
)
def test_a_command_line_is_read_whoevers_spelling_it_has(line: str, facts: dict[str, Any]) -> None:
    request = parse_request(line.split())
    assert {name: getattr(request, name) for name in facts} == facts


def test_keys_of_the_autotuning_section_and_limits_of_a_search_are_flags() -> None:
    words = ["--tuner-type", "random", "--fast=false", "--overwrite", "--budget", "20m,30trials"]
    request = parse_request([*words, "t.py"])
    settings = {"tuner_type": "random", "fast": "false", "overwrite": "true"}
    assert dict(request.words.overrides) == settings
    assert (request.limits.seconds, request.limits.trials) == (1200.0, 30)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--num_gpu 2", r"--num_gpu; did you mean '--num_gpus'\?"),
        ("--launcher_arg x", "did you mean '--launcher_args'"),
        ("--use_foo 1", r"Unknown flag --use_foo; see .*--help\.$"),
        ("--memory-limit 10", "'10' has no unit; write for example 10GB"),
        *(
            (flag, flag.partition("=")[2])
            for flag in (
                *("--budget=much", "--budget=0trials", "--good-enough=lots", "--soak-steps=-3"),
            )
        ),
        ("--trial_timeout abc", "^--trial_timeout 'abc' is not a time; "),
        ("--budget 5", "^--budget is '5', but must be a time "),
        ("--redirects 4", "^-r/--redirects: invalid choice: '4'"),
        ("--num_gpus 1 --autotuning", r"autoconf-launch tune --num_gpus 1 t\.py --lr 1\.$"),
    ],
)
def test_a_wrong_flag_is_refused_with_its_name_and_what_to_write(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_request([*line.split(), "t.py", "--lr", "1"])


def test_the_help_names_every_flag_of_the_table_and_the_cost_of_an_effort() -> None:
    text = " ".join(LaunchRequest.parser().format_help().split())
    for flag in ("--hostfile", "--nproc_per_node", "--bind_core_list", "--save_pid", "--fresh"):
        assert flag in text
    assert "thorough 1.5 % (70 %)" in text


@pytest.mark.parametrize(
    "argv",
    [
        ["--num_gpus", "0", "t.py"],
        ["--num_gpus", "two", "t.py"],
        ["--num_nodes", "1:2", "t.py"],
        ["--master_port", "70000", "t.py"],
        ["--node_rank", "first", "t.py"],
        ["--autotuning", "fast", "t.py"],
        ["--autotuning", "--num_nodes", "1", "t.py"],
        ["--memory-limit", "much", "t.py"],
        ["--memory-limit", "10", "t.py"],
        ["--trial-timeout", "-1", "t.py"],
        ["--module", "--no_python", "t"],
        ["--launcher", "telnet", "t.py"],
        ["--rdzv_backend", "etcd", "t.py"],
        ["--rdzv_endpoint", "h:p", "t.py"],
        ["--rdzv_endpoint", "h:1", "--master_addr", "g", "t.py"],
        ["--max_restarts", "3", "t.py"],
        ["--standalone", "--nnodes", "2", "t.py"],
        ["--standalone", "--hostfile", "hosts", "t.py"],
        ["--redirects", "3", "t.py"],
        ["--bind_core_list", "3-1", "t.py"],
        ["-i", "a", "-e", "b", "t.py"],
        ["--keep-global-batch", "--allow-global-batch-change", "t.py"],
        ["--num_gpus"],
        [],
    ],
)
def test_a_command_line_that_means_nothing_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_request(argv)


@pytest.mark.parametrize("filter_flag", ["-i", "-e"])
@pytest.mark.parametrize(
    "count", [["--num_nodes", "1"], ["--num_nodes", "1", "--num_gpus", "1"], ["--num_gpus", "1"]]
)
def test_a_filter_and_a_count_exclude_each_other(count: list[str], filter_flag: str) -> None:
    with pytest.raises(ConfigError, match="cannot be given together"):
        parse_request([*count, filter_flag, "localhost", "foo.py"])


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5g", 1_500_000_000), ("1000B", 1000)],
)
def test_sizes_are_decimal_unless_written_with_an_i(text: str, size: int) -> None:
    assert BYTES.read(text) == size


@pytest.mark.parametrize(
    "flags",
    [["--dry-run"], ["--budget=20m"], ["--fast=false"], ["--knob=a=[1]"], ["--no_history"]],
)
def test_a_flag_of_a_tune_is_refused_on_a_plain_launch(flags: list[str]) -> None:
    assert parse_request(["--autotuning=run", *flags, "train.py"]).autotuning == "run"
    require_use(parse_request(["--memory-limit=2GB", "-q", "train.py", *flags]))
    with pytest.raises(ConfigError, match="write autoconf-launch tune --"):
        require_use(parse_request([*flags, "train.py"]))


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_a_flag_that_is_not_offered_says_why(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag} is not offered: .{{20,}}"):
        parse_request([flag, "1", "t.py"])


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_flag_without_effect_is_said_to_have_none(name: str) -> None:
    value = {"no_ssh_check": [], "launcher": ["pdsh"]}.get(name, ["1"])
    (note,) = parse_request([f"--{name}", *value, "t.py"]).notes
    assert note.startswith(f"--{name} has no effect: ")


FLAGS = sorted({*LaunchRequest.parser()._option_string_actions, *REFUSED} - {"-h", "--help"})
VALUES = st.sampled_from(["", "1", "-1", "0", "x", "²", "1e9", "a:b@c", "'", "--", "9" * 5000])


@example(["--duplicate_stderr_filters", "9" * 5000])
@given(st.lists(st.one_of(st.sampled_from(FLAGS), VALUES, st.text(max_size=4)), max_size=6))
def test_any_command_line_is_a_request_or_a_usage_error(argv: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        parse_request([word for word in argv if not word.startswith(("-h", "--h"))])


def test_a_gain_of_two_percent_is_worth_a_trial_unless_said_otherwise() -> None:
    lines = (["train.py"], ["--effort=quick", "train.py"])
    assert [search_gain(parse_request(argv)) for argv in lines] == [0.02, 0.05]
    asked = parse_request(["--effort=quick", "--good-enough=1%", "train.py"])
    assert search_gain(asked) == 0.01


def search_gain(request: LaunchRequest) -> float | None:
    """The gain below which its search ends."""
    effort = EFFORTS[parse_settings(dict(request.words.overrides)).effort]
    return search_limits(request, TimeBudget(), effort).least_gain


def test_all_flags_that_are_not_taken_are_named_at_once() -> None:
    words = "--tee 3 --role x --local-addr=y --nnodes=1:4 --use-foo t.py"
    with pytest.raises(ConfigError) as found:
        parse_request(words.split())
    for flag in ("--tee is not", "--role is not", "--local-addr is not", "'1:4' is a range"):
        assert flag in str(found.value)
    assert "Unknown flag --use-foo; see autoconf-launch tune --help." in str(found.value)


@pytest.mark.parametrize(
    "typed",
    [
        ("--allow-global-batch-change", "--budget", "40s", "--num_gpus", "2"),
        ("--arg", "train_micro_batch_size_per_gpu=--bs", "--dialect=arguments", "--fresh"),
    ],
)
def test_what_was_typed_is_kept_for_a_line_that_starts_in_another_way(
    typed: tuple[str, ...],
) -> None:
    argv = ("--autotuning=tune", *typed, "--no_local_rank", "--ssh_port", "7", "t.py", "--fresh")
    request = replace(parse_request(argv), alone=True, processes=None)
    assert typed_flags(request) == typed
    assert launch_flags(request)[:2] == ("--ssh_port", "7")
