"""The Python that a word of a command line means, and the word for ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..input_file import input_text

_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
OUR_COMMAND = (sys.executable, *_SAFE_PATH, "-m", "autoconf_launch.launcher.cli")
"""The command in files that are run later, which import nothing from the folder they run in."""
_PYTHON_FLAG = re.compile(r"-([A-Zabd-ln-z]*?)([cmWX].*)?")
_DEAF = frozenset({"-I", "-E", "-S"})
"""Flags of Python with which PYTHONPATH or sitecustomize is not read."""
_SAY_PATH = "import sys; sys.stdout.write(sys.executable)"
_PATIENCE_S = 60.0
NAME_VARIABLE = "DS_ENV_FILE"
_DEFAULT_NAME = ".deepspeed_env"


def other_python(word: str) -> str | None:
    """Path of the Python that a shell would run; None if it is ours, or none is found.

    Raises:
        ConfigError: a path is given, and nothing there can be run.
    """
    found = shutil.which(word)
    if found is None and os.sep in word:
        raise ConfigError(
            f"{word} is not a Python that can be run; give the path of one, or the script itself."
        )
    return None if found is None or _is_ours(Path(found)) else str(Path(found).absolute())


def python_beside(launcher: str) -> str | None:
    """Another Python than ours in whose environment a launcher is installed, as torchrun is."""
    found = shutil.which(launcher)
    beside = Path(found).with_name("python") if found else None
    return other_python(str(beside)) if beside and os.access(beside, os.X_OK) else None


def our_python() -> str:
    """``python`` if a shell would run ours, else its path."""
    found = shutil.which("python")
    return "python" if found and _is_ours(Path(found)) else sys.executable


def split_python_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Python's flags before the script, ``-m`` or ``-c``, one word each, and the other words."""
    flags, rest = list[str](), list(words)
    while rest and rest[0] != "-" and (match := _PYTHON_FLAG.fullmatch(rest[0])):
        letters, valued = match[1], match[2] or ""
        del rest[0]
        flags += [f"-{letter}" for letter in letters]
        if valued[:1] in ("c", "m"):
            return flags, [f"-{valued[0]}", *filter(None, [valued[1:]]), *rest]
        if valued:
            value = valued[1:] or (rest.pop(0) if rest else "")
            flags.append(f"-{valued[0]}{value}")
    return flags, rest


def deaf_flag(argv: Sequence[str]) -> str | None:
    """The flag in a command by which its Python ignores the probe: ``-I``, ``-E`` or ``-S``."""
    if not argv or not Path(argv[0]).name.startswith(("python", "pypy")):
        return None
    flags, _ = split_python_flags(argv[1:])
    return next((flag for flag in flags if flag in _DEAF), None)


def audible(flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Flags and variables of a measured Python; with ``-I`` or ``-E`` it would not find the probe.

    The other effects of ``-I`` stay: neither the user's packages nor the script's folder count.
    """
    kept = ("-s" if flag == "-I" else flag for flag in flags if flag != "-E")
    variables = (("PYTHONSAFEPATH", "1"),) if "-I" in flags else ()
    return tuple(dict.fromkeys(kept)), variables


def python_of(runner: Sequence[str]) -> str:
    """Path of the Python that ``uv run`` and the like start.

    Raises:
        ConfigError: the runner fails, or starts none.
    """
    command = (*runner, "python", "-c", _SAY_PATH)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ConfigError(
            f"{shlex.join(runner)} starts no Python: {words[-1] if words else 'it failed'}"
        ) from error
    return answer.stdout.strip()


def _is_ours(python: Path) -> bool:
    """Return whether it is our file in our folder: environments are folders of links to a file."""
    ours = Path(sys.executable)
    return python.samefile(ours) and python.parent.samefile(ours.parent)


def read_environment_files() -> tuple[tuple[str, str], ...]:
    """Variables of the file in the home folder, then of the one here, which wins.

    Raises:
        ConfigError: a file cannot be read, or has a line that is no ``NAME=VALUE``.
    """
    name = os.environ.get(NAME_VARIABLE) or _DEFAULT_NAME
    paths = dict.fromkeys((Path.home() / name, Path.cwd() / name))
    variables: dict[str, str] = {}
    for path in paths:
        if path.is_file():
            variables.update(parse_environment(_text(path), str(path)))
    return tuple(variables.items())


def parse_environment(text: str, name: str) -> tuple[tuple[str, str], ...]:
    """Variables of ``NAME=VALUE`` lines; a value keeps its blanks and later ``=`` signs.

    Blank lines and comments are skipped, quotes around a whole value too.

    Raises:
        ConfigError: a line of another form; ``name`` is the file's.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)=(.*)", line)
        if not match or "\0" in line:
            raise ConfigError(f"Line {number} of {name} is not NAME=VALUE; fix or remove it.")
        variables[match[1]] = _unquote(match[2])
    return tuple(variables.items())


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


def _text(path: Path) -> str:
    try:
        return input_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(f"{path} cannot be read: {reason}.") from error
