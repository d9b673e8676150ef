import contextlib
from dataclasses import replace

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
)
from autoconf_launch.launcher.tuning import TimeBudget, search_limits


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


def test_flags_are_not_abbreviated() -> None:
    with pytest.raises(ConfigError, match="did you mean '--launcher_args'"):
        parse_request(["--launcher_arg", "x", "train.py"])


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


def test_each_key_of_the_autotuning_section_is_a_flag() -> None:
    request = parse_request(["--tuner-type", "random", "--fast=false", "--overwrite", "t.py"])
    assert dict(request.words.overrides) == {
        "tuner_type": "random",
        "fast": "false",
        "overwrite": "true",
    }


@pytest.mark.parametrize("flag", ["--module", "-m"])
def test_a_module_is_a_script_of_another_kind(flag: str) -> None:
    assert parse_request([flag, "pkg.train"]).kind == "module"


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5g", 1_500_000_000), ("1000B", 1000)],
)
def test_sizes_are_decimal_unless_written_with_an_i(text: str, size: int) -> None:
    assert BYTES.read(text) == size


def test_a_size_without_a_unit_is_told_to_have_one() -> None:
    with pytest.raises(ConfigError, match="'10' has no unit; write for example 10GB"):
        parse_request(["--memory-limit", "10", "t.py"])


@pytest.mark.parametrize(
    "flags",
    [["--dry-run"], ["--budget=20m"], ["--fast=false"], ["--knob=a=[1]"], ["--no_history"]],
)
def test_a_flag_of_a_tune_is_refused_on_a_plain_launch(flags: list[str]) -> None:
    assert parse_request(["--autotuning=run", *flags, "train.py"]).autotuning == "run"
    require_use(parse_request(["--memory-limit=2GB", "-q", "train.py", *flags]))
    with pytest.raises(ConfigError, match="write autoconf-launch tune --"):
        require_use(parse_request([*flags, "train.py"]))


def test_short_flags_take_their_value_in_both_ways() -> None:
    request = parse_request(["-H", "hosts", "-i=worker-0:1", "t.py"])
    assert request.hosts == HostChoice(hostfile="hosts", include="worker-0:1")


def test_deepspeeds_defaults_may_be_written_out() -> None:
    argv = (
        "--num_gpus -1 --num_nodes -1 --node_rank=-1 --enable_each_rank_log None --include= t.py"
    )
    request = parse_request(argv.split())
    assert (request.processes, request.hosts, request.rank_log_folder) == (
        None,
        HostChoice(),
        None,
    )


@pytest.mark.parametrize("word", ["gpu", "cpu", "auto"])
def test_torchruns_words_count_for_us(word: str) -> None:
    assert parse_request([f"--nproc-per-node={word}", "t.py"]).processes == word


def test_a_torchrun_command_means_the_same_here() -> None:
    argv = "--nnodes=2:2 --nproc_per_node=4 --node-rank 1 --rdzv-backend c10d --rdzv-id run7"
    request = parse_request([*argv.split(), "--rdzv-endpoint=10.0.0.1:29400", "t.py"])
    assert request.processes == 4
    assert request.hosts == HostChoice(nodes=2, node_rank=1)
    assert (request.rendezvous.address, request.rendezvous.port) == ("10.0.0.1", 29400)
    assert request.rendezvous.run_id == "run7"


def test_an_endpoint_may_be_an_ipv6_address() -> None:
    request = parse_request(["--rdzv_endpoint", "[fe80::1]:29400", "t.py"])
    assert (request.rendezvous.address, request.rendezvous.port) == ("fe80::1", 29400)


@pytest.mark.parametrize(
    "argv", [["--enable_each_rank_log", "logs"], ["--log-dir", "logs", "-r", "3"]]
)
def test_both_launchers_ways_to_ask_for_rank_logs_are_one(argv: list[str]) -> None:
    assert parse_request([*argv, "t.py"]).rank_log_folder == "logs"


def test_a_list_of_cores_implies_binding() -> None:
    request = parse_request(["--bind_core_list", "0,2-4", "t.py"])
    assert request.binding == CoreBinding(cores=(0, 2, 3, 4))


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_a_flag_that_is_not_offered_says_why(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag} is not offered: .{{20,}}"):
        parse_request([flag, "1", "t.py"])


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_flag_without_effect_is_said_to_have_none(name: str) -> None:
    value = {"no_ssh_check": [], "launcher": ["pdsh"]}.get(name, ["1"])
    (note,) = parse_request([f"--{name}", *value, "t.py"]).notes
    assert note.startswith(f"--{name} has no effect: ")


def test_the_help_names_every_flag_of_the_table() -> None:
    text = LaunchRequest.parser().format_help()
    for flag in ("--hostfile", "--nproc_per_node", "--bind_core_list", "--save_pid", "--fresh"):
        assert flag in text


FLAGS = sorted({*LaunchRequest.parser()._option_string_actions, *REFUSED} - {"-h", "--help"})
VALUES = st.sampled_from(["", "1", "-1", "0", "x", "²", "1e9", "a:b@c", "'", "--", "9" * 5000])


@example(["--duplicate_stderr_filters", "9" * 5000])
@given(st.lists(st.one_of(st.sampled_from(FLAGS), VALUES, st.text(max_size=4)), max_size=6))
def test_any_command_line_is_a_request_or_a_usage_error(argv: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        parse_request([word for word in argv if not word.startswith(("-h", "--h"))])


def test_what_a_search_may_cost_is_read() -> None:
    request = parse_request(["--budget", "20m,30trials", "--good-enough=1%", "train.py"])
    assert (request.limits.seconds, request.limits.trials) == (1200.0, 30)
    assert (request.good_enough, request.soak_steps) == (0.01, None)


def test_a_gain_of_two_percent_is_worth_a_trial_unless_said_otherwise() -> None:
    lines = (["train.py"], ["--effort=quick", "train.py"])
    assert [search_gain(parse_request(argv)) for argv in lines] == [0.02, 0.05]
    asked = parse_request(["--effort=quick", "--good-enough=1%", "train.py"])
    assert search_gain(asked) == 0.01


def search_gain(request: LaunchRequest) -> float | None:
    """The gain below which its search ends."""
    effort = EFFORTS[parse_settings(dict(request.words.overrides)).effort]
    return search_limits(request, TimeBudget(), effort).least_gain


def test_help_says_what_an_effort_costs() -> None:
    assert "0.3 % (thorough, 70 %)" in " ".join(LaunchRequest.parser().format_help().split())


def test_no_steps_is_no_soak() -> None:
    assert parse_request(["--soak-steps=0", "train.py"]).soak_steps == 0


@pytest.mark.parametrize(
    "flag", ["--budget=much", "--budget=0trials", "--good-enough=lots", "--soak-steps=-3"]
)
def test_a_limit_that_is_none_is_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match=flag.partition("=")[2]):
        parse_request([flag, "train.py"])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--trial_timeout", "abc"], "--trial_timeout 'abc' is not a time; "),
        (["--budget", "5"], "--budget is '5', but must be a time "),
        (["--redirects", "4"], "-r/--redirects: invalid choice: '4'"),
    ],
)
def test_a_wrong_value_is_told_by_the_flags_name(argv: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_request([*argv, "train.py"])
    assert str(error.value).startswith(sentence)


def test_all_flags_that_are_not_taken_are_named_at_once() -> None:
    words = "--tee 3 --role x --local-addr=y --nnodes=1:4 --use-foo t.py"
    with pytest.raises(ConfigError) as found:
        parse_request(words.split())
    for flag in ("--tee is not", "--role is not", "--local-addr is not", "'1:4' is a range"):
        assert flag in str(found.value)
    assert "Unknown flag --use-foo; see autoconf-launch tune --help." in str(found.value)


@pytest.mark.parametrize(
    ("flag", "near"), [("--num_gpu", "--num_gpus"), ("--use_foo", None), ("--speed", None)]
)
def test_only_a_near_flag_is_suggested(flag: str, near: str | None) -> None:
    with pytest.raises(ConfigError) as found:
        parse_request([flag, "1", "t.py"])
    assert (f"did you mean '{near}'?" in str(found.value)) is (near is not None)


def test_a_mode_that_is_a_script_gets_the_line_that_works() -> None:
    with pytest.raises(ConfigError, match=r"autoconf-launch tune --num_gpus 1 t\.py --lr 1\.$"):
        parse_request(["--num_gpus", "1", "--autotuning", "t.py", "--lr", "1"])


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
