import select
import sys
import time
from typing import Any

import pytest

from autoconf_launch.core import HardwareError
from autoconf_launch.launcher.engines import FolderLine, HostLine, SshEngine, over_hosts
from autoconf_launch.launcher.engines import line as line_module


def make_line(program: str, *probe: str) -> HostLine:
    return HostLine("far", (sys.executable, "-I", "-S", "-c", program), probe)


def why_lost(line: HostLine) -> str | None:
    return line.loss.detail if line.loss else None


def first_lines(line: HostLine | FolderLine, count: int) -> list[dict[str, Any]]:
    assert isinstance(line, HostLine)
    found = list[dict[str, Any]]()
    while len(found) < count and line.loss is None:
        select.select([line], [], [], 5)
        found += line.read()
    return found


def test_what_a_login_shell_prints_is_skipped() -> None:
    line = make_line("print('Welcome!'); print('[1]'); print('{\"here\": 1}', flush=True)")
    assert first_lines(line, 1) == [{"here": 1}]
    line.close()


def test_a_line_without_end_is_not_kept() -> None:
    begun = b"x" * (line_module.MOST_LINE_BYTES + 1)
    assert line_module.split_lines(b'{"here": 1}\n' + begun) == ([{"here": 1}], b"")


def test_a_host_that_never_stops_writing_does_not_hold_the_launcher() -> None:
    line = make_line("import os\nwhile True: os.write(1, b'x' * 65536)")
    select.select([line], [], [], 5)
    assert line.read() == []
    line.close()


def test_a_host_that_describes_itself_as_no_agent_does_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = (make_line('print(\'{"here": {"address": 7}}\', flush=True); input()'),)
    engine = SshEngine()
    monkeypatch.setattr(engine, "open_lines", lambda hosts: lines)
    with pytest.raises(HardwareError, match=r"Host far does not describe itself as an agent"):
        engine.describe_hosts(("far",))


def test_a_host_that_ends_says_its_last_words_without_control_characters() -> None:
    line = make_line("import sys; sys.exit('ssh: \\x1b[31mno route')")
    first_lines(line, 1)
    assert why_lost(line) == "closed the connection (ssh: \\x1b[31mno route)"
    line.close()


def test_a_silent_host_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "SILENCE_S", 0.2)
    line = make_line("print('{\"here\": 1}', flush=True); import time; time.sleep(60)")
    first_lines(line, 1)
    assert line.loss is None
    time.sleep(0.3)
    assert why_lost(line) == "has not answered for 0 s"
    line.close()


@pytest.mark.parametrize(("probe", "is_unreachable"), [("false", True), ("true", False)])
def test_a_silent_host_is_tried_anew(
    monkeypatch: pytest.MonkeyPatch, probe: str, is_unreachable: bool
) -> None:
    monkeypatch.setattr(line_module, "SILENCE_S", 0.4)
    line = make_line("print('{\"here\": 1}', flush=True); import time; time.sleep(60)", probe)
    first_lines(line, 1)
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        line.read()
        time.sleep(0.05)
    assert line.is_unreachable == is_unreachable
    why = "has not answered for 0 s"
    assert why_lost(line) == (f"{why} and cannot be reached anew" if is_unreachable else why)
    line.close()
    assert not line.is_unreachable


def test_lines_reach_the_other_end_in_order() -> None:
    echo = "import sys\nfor text in sys.stdin: sys.stdout.write(text); sys.stdout.flush()"
    line = make_line(echo)
    sent = [{"number": number} for number in range(100)]
    for each in sent:
        line.send(each)
    assert first_lines(line, 100) == sent
    line.close()


def test_the_agent_of_this_machine_describes_it() -> None:
    (line,) = SshEngine().open_lines(["localhost"])
    assert isinstance(line, HostLine)
    here = first_lines(line, 1)[0]["here"]
    line.close()
    assert here["launcher_address"] is None
    assert here["cores"] >= 1
    assert here["memory_bytes"] > 1 << 20


def test_a_host_with_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "_version", lambda package: "0.0.1")
    monkeypatch.setattr(over_hosts, "_DESCRIBED", {})
    with pytest.raises(HardwareError, match=r"Host localhost has autoconf-launch .*has 0\.0\.1"):
        SshEngine().describe_hosts(("localhost",))
