import time
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.engines import HostSlots
from autoconf_launch.launcher.hosts import require_one_start
from autoconf_launch.launcher.hosts.hostfile import parse_hostfile, read_hostfile
from autoconf_launch.launcher.request import HostChoice

GOOD = """
worker-1 slots=2

#worker-1 slots=3
# just a comment
   worker-2 slots=2
localhost slots=1
  123.23.12.10  slots=2
"""


def sizes(hosts: tuple[HostSlots, ...]) -> list[tuple[str, int]]:
    return [(host.host, len(host.slots)) for host in hosts]


def test_hosts_are_read_in_order_around_blanks_and_comments() -> None:
    assert sizes(parse_hostfile(GOOD, "hosts")) == [
        ("worker-1", 2),
        ("worker-2", 2),
        ("localhost", 1),
        ("123.23.12.10", 2),
    ]


@pytest.mark.parametrize("tail", ["", " max_slots=8", "\t# comment", "#comment"])
def test_slots_count_from_0_and_further_words_on_a_line_mean_nothing(tail: str) -> None:
    (host,) = parse_hostfile(f"a slots=3{tail}", "hosts")
    assert (host.host, host.slots) == ("a", (0, 1, 2))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("worker-1 slots=2\nworker-2 slots=4\nworker-1 slots=3", "Line 3 .* again, after line 1"),
        ("this is bad slots=1", "Line 1 .* is 'this is bad slots=1'"),
        ("missingslots", "Line 1 .* must be: HOST slots=N"),
        ("", "names no host"),
        ("# nothing\n\n", "names no host"),
        ("good slots=2\nalso_good slots=1\nbad slot=1", "Line 3"),
        ("a slots=0", "1 to 4096"),
        ("a slots=99999999999999", "1 to 4096"),
        ("a slots=2x", "must be"),
        ("-oProxyCommand=x slots=1", "does not begin with a hyphen"),
        ("a`id` slots=1", "names host 'a`id`'"),
        ("u1@10.0.0.1 slots=2", r"write 10\.0\.0\.1, and give the user u1 to ssh"),
    ],
)
def test_a_bad_hostfile_is_refused_with_its_line(text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        parse_hostfile(text, "hosts")


@pytest.mark.parametrize(("hosts", "slots", "line"), [(100_000, 1, 65537), (100_000, 4096, 257)])
def test_more_hosts_or_slots_than_any_launch_has_are_refused_at_once(
    hosts: int, slots: int, line: int
) -> None:
    text = "".join(f"w{number} slots={slots}\n" for number in range(hosts))
    start_s = time.process_time()
    with pytest.raises(ConfigError, match=f"Line {line} .* at most 65536 hosts with 1048576"):
        parse_hostfile(text, "hosts")
    assert time.process_time() - start_s < 2.0


def test_a_byte_order_mark_is_not_part_of_a_host(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfworker-1 slots=2\r\nworker-2 slots=1\r\n")
    assert sizes(read_hostfile(str(tmp_path / "hosts"))) == [("worker-1", 2), ("worker-2", 1)]


def test_a_file_that_cannot_be_read_is_named_with_its_defect(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("bad")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, says in (
        ("absent", "does not exist"),
        ("bad", "of hostfile .*/bad"),
        ("binary", "cannot be read"),
        ("", "cannot be read: Is a directory"),
    ):
        with pytest.raises(ConfigError, match=says):
            read_hostfile(str(tmp_path / name))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"},
            r"mpirun has started autoconf-launch 4 times \(this is number 3\)",
        ),
        ({"PMI_SIZE": "2"}, "mpirun has started autoconf-launch 2 times"),
        (
            {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"},
            r"srun has started .* 2 times \(this is number 0\).* once, with --launcher slurm",
        ),
        (
            {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "8", "RANK": "5", "GROUP_RANK": "1"},
            r"torchrun has started .* 8 times \(this is number 5\).* --no_ssh --node_rank 1\.",
        ),
    ],
)
def test_a_launcher_that_another_one_starts_for_each_rank_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=said):
        require_one_start(HostChoice())
    require_one_start(HostChoice(node_rank=1))
    for name in variables:
        monkeypatch.setenv(name, "1")
    require_one_start(HostChoice())
