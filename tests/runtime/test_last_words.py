from pathlib import Path

from autoconf_launch.runtime.rank.failures import last_words


def caught() -> Exception:
    try:
        raise RuntimeError("the cause")
    except RuntimeError as error:
        return error


def test_what_was_printed_comes_before_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("first\n\nlast printed\n")
    words = last_words(tmp_path, caught())
    assert words[:2] == ("first", "last printed")
    assert words[-1] == "RuntimeError: the cause"


def test_a_long_log_is_read_at_its_end_alone(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 10_000 + "\nlast printed\n")
    assert "last printed" in last_words(tmp_path, caught())


def test_without_a_log_the_traceback_is_left(tmp_path: Path) -> None:
    assert last_words(tmp_path, caught())[0].startswith("Traceback")
