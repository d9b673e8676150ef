from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.launcher.launch import LogStart, printed_error, read_log_tail
from autoconf_launch.launcher.launch.rank_results import clean_line, last_said

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n'


def write(folder: Path, text: str | bytes) -> Path:
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "stderr.log").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        (
            "".join(f"line {n}\n" for n in range(10_000)),
            [f"line {n}" for n in range(9985, 10_000)],
        ),
        ("why\n\n  \n\n", ["why"]),
        ("x" * 20_000 + "\nlast\n", ["last"]),  # a line that the read cut through
        ("x" * 20_000, ["x" * 500]),
        (b"caf\xe9\n", ["caf\ufffd"]),
    ],
    ids=["last_15", "not_blank", "whole", "one_endless_in_part", "no_text_replaced"],
)
def test_the_last_lines_of_a_log_are_given(
    tmp_path: Path, log: str | bytes, lines: list[str]
) -> None:
    assert list(read_log_tail(write(tmp_path, log))) == lines


def test_standard_output_speaks_where_standard_error_is_silent(tmp_path: Path) -> None:
    assert read_log_tail(tmp_path) == ()
    (write(tmp_path, "\n") / "stdout.log").write_text("hello\n")
    assert read_log_tail(tmp_path) == ("hello",)


def test_lines_of_an_earlier_launch_are_left_out(tmp_path: Path) -> None:
    assert read_log_tail(write(tmp_path, "old\nnew\n"), LogStart(stderr_bytes=4)) == ("new",)


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (f"{TRACE}ValueError: bad\n", "ValueError: bad"),
        (f"{TRACE}my.pkg.Odd\n", "my.pkg.Odd"),
        (f"{TRACE}KeyError: 'caught'\nnote: going on\n{TRACE}OSError: last\n", "OSError: last"),
        ('  File "x.py", line 1\n    f(\n     ^\nSyntaxError: open\n', "SyntaxError: open"),
        ("usage: t.py [-h]\nt.py: error: unrecognized: --x\n", "t.py: error: unrecognized: --x"),
        ("[rank0]: " + f"{TRACE}OSError: gone\n".replace("\n", "\n[rank0]: "), "OSError: gone"),
        ("ValueError: said in passing\nepoch 1: done\n", ""),
        ("", ""),
    ],
)
def test_the_error_at_a_traceback_s_end_is_found(tmp_path: Path, log: str, error: str) -> None:
    assert "".join(printed_error(write(tmp_path, log))[-1:]) == error


def test_the_lines_of_an_error_are_its_traceback_alone(tmp_path: Path) -> None:
    write(tmp_path, f"UserWarning: odd\n{TRACE}OSError: gone\n 9%|# |\n")
    assert printed_error(tmp_path) == (*TRACE.splitlines(), "OSError: gone")


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        ("no data in /data", True),
        ("t.py:3: UserWarning: slow", False),
        ('  warnings.warn("slow")', False),
        (" 30%|###       | 3/10 [00:01<00:02,  2.9it/s]", False),
        ("[W1126 10:00:00.000 socket.cpp:1] The server socket cannot be reached", False),
        ("RuntimeError: [gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:1", False),
    ],
)
def test_the_last_line_of_a_script_that_gives_up_is_its_reason_if_it_gives_one(
    tmp_path: Path, line: str, is_shown: bool
) -> None:
    assert last_said(tmp_path) == ()
    said = last_said(write(tmp_path, f"UserWarning: odd\n{line}\n"))
    assert said == ((line,) if is_shown else ())


def test_of_ranks_that_share_a_log_the_first_error_counts_unless_it_is_marked_as_a_peers(
    tmp_path: Path,
) -> None:
    write(tmp_path, f"{TRACE}KeyError: 'a'\n{TRACE}OSError: peer\n")
    assert printed_error(tmp_path, ranks=2)[-1] == "KeyError: 'a'"
    marked = "".join(f"[rank0]: {line}\n" for line in f"{TRACE}OSError: peer".splitlines())
    write(tmp_path, marked)
    assert printed_error(tmp_path, ranks=2, rank=1) == ()
    assert printed_error(tmp_path, ranks=2, rank=0)[-1] == "OSError: peer"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        (" 10%|#   \r 20%|##  ", " 20%|##"),
        ("windows\r", "windows"),
        ("a\tb\x00\x07c", "a\tbc"),
    ],
)
def test_what_a_terminal_would_not_show_is_left_out(line: str, shown: str) -> None:
    assert clean_line(line) == shown


@given(st.text())
def test_no_control_character_but_the_tab_remains(line: str) -> None:
    kept = clean_line(line).replace("\t", "")
    assert all(ord(character) >= 32 and not 127 <= ord(character) < 160 for character in kept)
