from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.launcher.launch import LogStart, printed_error, read_log_tail
from autoconf_launch.launcher.launch.rank_results import clean_line, last_said

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n'


def test_the_last_15_lines_are_given(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("".join(f"line {n}\n" for n in range(10_000)))
    assert read_log_tail(tmp_path) == tuple(f"line {n}" for n in range(9985, 10_000))


def test_blank_lines_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("why\n\n  \n\n")
    assert read_log_tail(tmp_path) == ("why",)


def test_standard_output_speaks_where_standard_error_is_silent(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("\n")
    (tmp_path / "stdout.log").write_text("hello\n")
    assert read_log_tail(tmp_path) == ("hello",)


def test_missing_logs_give_no_lines(tmp_path: Path) -> None:
    assert read_log_tail(tmp_path) == ()


def test_lines_of_an_earlier_launch_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("old\nnew\n")
    assert read_log_tail(tmp_path, LogStart(stderr_bytes=4)) == ("new",)


def test_a_line_that_the_read_cut_through_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 20_000 + "\nlast\n")
    assert read_log_tail(tmp_path) == ("last",)


def test_one_endless_line_is_shown_in_part(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 20_000)
    assert read_log_tail(tmp_path) == ("x" * 500,)


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
    (tmp_path / "stderr.log").write_text(log)
    assert "".join(printed_error(tmp_path)[-1:]) == error


def test_the_lines_of_an_error_are_its_traceback_alone(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text(f"UserWarning: odd\n{TRACE}OSError: gone\n 9%|# |\n")
    assert printed_error(tmp_path) == (*TRACE.splitlines(), "OSError: gone")


def test_the_last_line_of_a_script_that_gives_up_is_its_reason(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("UserWarning: odd\nno data in /data\n")
    assert last_said(tmp_path) == ("no data in /data",)


@pytest.mark.parametrize(
    "line",
    [
        "t.py:3: UserWarning: slow",
        '  warnings.warn("slow")',
        " 30%|###       | 3/10 [00:01<00:02,  2.9it/s]",
        "[W1126 10:00:00.000 socket.cpp:1] The server socket cannot be reached",
        "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1",
        "",
    ],
)
def test_a_last_line_that_gives_no_reason_is_not_shown(tmp_path: Path, line: str) -> None:
    (tmp_path / "stderr.log").write_text(f"epoch 1\n{line}\n" if line else "")
    assert last_said(tmp_path) == ()


def test_of_ranks_that_share_a_log_the_first_error_counts(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text(f"{TRACE}KeyError: 'a'\n{TRACE}OSError: peer\n")
    assert printed_error(tmp_path, ranks=2)[-1] == "KeyError: 'a'"


def test_an_error_that_torch_marks_as_another_rank_s_is_not_said_of_this_one(
    tmp_path: Path,
) -> None:
    marked = "".join(f"[rank0]: {line}\n" for line in f"{TRACE}OSError: peer".splitlines())
    (tmp_path / "stderr.log").write_text(marked)
    assert printed_error(tmp_path, ranks=2, rank=1) == ()
    assert printed_error(tmp_path, ranks=2, rank=0)[-1] == "OSError: peer"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_bytes(b"caf\xe9\n")
    assert read_log_tail(tmp_path) == ("caf\ufffd",)


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
