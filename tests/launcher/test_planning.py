import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import (
    ClusterSpec,
    ConfigError,
    Device,
    Mode,
    Node,
    RankTask,
    RawConfig,
    ResultsFolderError,
)
from autoconf_launch.launcher.flags import launch_flags, parse_request
from autoconf_launch.launcher.launch import plan_launch, read_script
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.request import (
    HostChoice,
    LaunchRequest,
    Rendezvous,
)
from autoconf_launch.launcher.spelling import Rendered


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "DS_ENV_FILE"):
        monkeypatch.delenv(name, raising=False)
    Path("train.py").write_text("")


def nodes(*sizes: int) -> ClusterSpec:
    """Nodes ``a``, ``b``, … with that many CPU slots; a single one is this machine."""
    hosts = "abc" if len(sizes) > 1 else ("localhost",)
    return ClusterSpec(
        nodes=tuple(
            Node(host=host, devices=(Device(name="cpu", memory_bytes=1),) * size)
            for host, size in zip(hosts, sizes, strict=False)
        )
    )


def gpus(*names: str) -> ClusterSpec:
    devices = tuple(Device(name="X", memory_bytes=1, visible_as=name) for name in names)
    return ClusterSpec(nodes=(Node(host="localhost", devices=devices),))


def with_arguments(*arguments: str) -> Rendered:
    return Rendered(config=RawConfig({}), script_args=arguments)


def plan(cluster: ClusterSpec, *flags: str) -> LaunchPlan:
    return plan_launch(parse_request([*flags, "train.py"]), cluster, with_arguments())


def variables(plan: LaunchPlan, rank: int = 0) -> dict[str, str]:
    return dict(plan.ranks[rank].environment)


def test_ranks_start_where_the_user_is_so_that_files_there_are_found(tmp_path: Path) -> None:
    trial = RankTask(mode=Mode.MEASURE, folder=str(tmp_path / "trial"), attempt="a")
    made = plan_launch(parse_request(["train.py"]), nodes(1), with_arguments(), task=trial)
    assert made.working_directory == str(tmp_path)


def test_a_script_alone_is_one_process_without_a_place_on_the_cores_of_all_ranks() -> None:
    request = replace(parse_request(["train.py"]), alone=True, cores=(0,))
    (only,) = plan_launch(request, nodes(1), with_arguments("--x")).ranks
    names = {name for name, _ in only.environment}
    assert not names & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    assert (only.argv[-2:], only.cores) == (("train.py", "--x"), (0,))


def test_the_named_python_starts_the_ranks() -> None:
    request = replace(parse_request(["train.py"]), python="/env/bin/python")
    (only,) = plan_launch(request, nodes(1), with_arguments()).ranks
    assert only.argv[:3] == ("/env/bin/python", "-u", "train.py")
    assert only.cores is None


def test_each_rank_knows_its_place_and_all_meet_at_the_same_free_port() -> None:
    first, second = (variables(plan(nodes(2)), rank) for rank in (0, 1))
    assert (second["RANK"], second["LOCAL_RANK"], second["WORLD_SIZE"]) == ("1", "1", "2")
    assert (first["MASTER_ADDR"], "CUDA_VISIBLE_DEVICES" in first) == ("127.0.0.1", False)
    launch = plan(nodes(2))
    assert variables(launch, 0)["MASTER_PORT"] == variables(launch, 1)["MASTER_PORT"]


def test_by_hand_this_hosts_ranks_are_planned_with_variables_that_span_all_hosts() -> None:
    launch = plan(nodes(2, 3), "--no_ssh", "--node_rank=1")
    assert [(rank.rank, rank.local_rank) for rank in launch.ranks] == [(2, 0), (3, 1), (4, 2)]
    seen = variables(launch)
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [seen[name] for name in names] == ["5", "3", "3", "1", "2"]
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("a", "29500")


def test_an_address_that_is_given_is_the_one() -> None:
    seen = variables(plan(nodes(1, 1), "--node_rank=1", "--rdzv_endpoint=10.0.0.1:7"))
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("10.0.0.1", "7")


@pytest.mark.parametrize(("names", "seen"), [(("1", "3"), "1,3"), (("", ""), "")])
def test_ranks_see_exactly_their_devices(names: tuple[str, ...], seen: str) -> None:
    found = variables(plan(gpus(*names)), 1)
    assert (found["CUDA_VISIBLE_DEVICES"], found["LOCAL_RANK"]) == (seen, "1")


@pytest.mark.parametrize("given", [None, "3,1"])
def test_numbers_of_devices_are_the_drivers_whoever_gave_them(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert variables(plan(gpus("3", "1")))["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_devices_that_a_scheduler_names_have_the_drivers_order() -> None:
    devices = (Device(name="NVIDIA L4", memory_bytes=1),)
    seen = variables(plan(ClusterSpec(nodes=(Node(host="localhost", devices=devices),))))
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_VISIBLE_DEVICES" not in seen


def test_amds_own_variable_is_set_if_it_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1,2,3")
    seen = variables(plan(gpus("1", "3")))
    assert (seen["HIP_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("1,3", "1,3")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES")
    assert "HIP_VISIBLE_DEVICES" not in variables(plan(gpus("1", "3")))


def test_threads_that_the_user_has_set_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in variables(plan(nodes(1)))


def test_a_bound_rank_has_as_many_threads_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    own = sorted(os.sched_getaffinity(0))
    launch = plan(nodes(1), "--bind_core_list", ",".join(map(str, own)))
    assert launch.ranks[0].cores == tuple(own)
    assert variables(launch)["OMP_NUM_THREADS"] == str(len(own))


def test_each_rank_gets_a_log_of_its_own_named_by_its_global_number() -> None:
    first, second = plan(nodes(2), "--enable_each_rank_log=logs").ranks
    (other,) = plan(nodes(2, 1), "--node_rank=1", "--log_dir=logs").ranks
    for log, number in ((first.log, 0), (second.log, 1), (other.log, 2)):
        assert log is not None
        assert log.endswith(f"_rank{number}.log")
        assert Path(log).parent == Path.cwd() / "logs"


def test_a_trial_keeps_its_logs_in_its_folder() -> None:
    task = RankTask(mode=Mode.MEASURE, folder="/trial", attempt="1")
    request = parse_request(["--enable_each_rank_log=logs", "train.py"])
    assert plan_launch(request, nodes(1), with_arguments(), task=task).ranks[0].log is None
    assert not Path("logs").exists()


def test_a_folder_for_logs_that_cannot_be_made_is_said() -> None:
    with pytest.raises(ResultsFolderError, match="give another one with --enable_each_rank_log"):
        plan(nodes(1), "--enable_each_rank_log=train.py")


def test_a_missing_script_is_said() -> None:
    with pytest.raises(ConfigError, match=r"Script absent\.py does not exist"):
        read_script(parse_request(["absent.py"]))


def test_the_environment_file_is_for_several_hosts_or_one_treated_so() -> None:
    Path(".deepspeed_env").write_text("NCCL_DEBUG=INFO\nWORLD_SIZE=99\n")
    assert "NCCL_DEBUG" not in variables(plan(nodes(1)))
    seen = variables(plan(nodes(1, 1), "--node_rank=0"))
    assert (seen["NCCL_DEBUG"], seen["WORLD_SIZE"]) == ("INFO", "2")
    assert variables(plan(nodes(1), "--force_multi"))["NCCL_DEBUG"] == "INFO"


def test_the_name_of_a_torchrun_run_is_handed_on() -> None:
    assert variables(plan(nodes(1), "--rdzv_id=run7"))["TORCHELASTIC_RUN_ID"] == "run7"


MANY = replace(nodes(2, 1, 3), nodes=(*nodes(2, 1, 3).nodes, *nodes(2, 1, 3).nodes[:1]))
words = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=8)
names = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)
filters = st.from_regex(r"[a-z]{1,3}(:[0-9](,[0-9]){0,2})?(@[a-z]{1,3})?", fullmatch=True)
counts = st.none() | st.integers(1, 9)
cores = st.none() | st.sets(st.integers(0, 64), min_size=1).map(lambda s: tuple(sorted(s)))


def host_choices(alone: bool) -> st.SearchStrategy[HostChoice]:
    if alone:
        return st.builds(HostChoice, standalone=st.just(True), force_multi=st.booleans())
    common = {
        "hostfile": st.none() | names,
        "node_rank": st.none() | st.integers(0, 3),
        "by_hand": st.booleans(),
        "force_multi": st.booleans(),
    }
    return st.one_of(
        st.builds(HostChoice, nodes=counts, **common),
        st.builds(HostChoice, include=filters, **common),
        st.builds(HostChoice, exclude=filters, **common),
    )


@st.composite
def launch_requests(draw: st.DrawFn) -> LaunchRequest:
    alone = draw(st.booleans())
    hosts = draw(host_choices(alone))
    filtered = bool(hosts.include or hosts.exclude)
    processes = counts | st.sampled_from(["gpu", "cpu", "auto"])
    return draw(
        st.builds(
            LaunchRequest,
            script=names,
            script_args=st.lists(words).map(tuple),
            kind=st.sampled_from(["script", "module", "program"]),
            processes=st.none() if filtered else processes,
            hosts=st.just(hosts),
            rendezvous=st.builds(
                Rendezvous,
                address=st.none() if alone else st.none() | names,
                port=st.none() if alone else st.none() | st.integers(1, 65535),
                run_id=st.none() | words,
            ),
            binds_cores=st.booleans(),
            cores=cores,
            local_rank_flag=st.sampled_from((None, "")),
            rank_log_folder=st.none() | names,
            save_pid=st.booleans(),
        )
    )


@given(launch_requests())
def test_the_flags_of_a_request_are_the_same_request_and_start_the_same_ranks(
    request: LaunchRequest,
) -> None:
    again = parse_request([*launch_flags(request), request.script, *request.script_args])
    assert replace(again, argv=(), notes=()) == request
    if request.kind != "script":
        here: dict[str, Any] = {"binds_cores": False, "cores": None, "rank_log_folder": None}
        meeting = replace(request.rendezvous, port=request.rendezvous.port or 29501)
        hosts = replace(request.hosts, standalone=False)
        plans = [
            plan_launch(
                replace(one, rendezvous=meeting, hosts=hosts, **here), MANY, with_arguments()
            )
            for one in (request, again)
        ]
        assert plans[0] == plans[1]
