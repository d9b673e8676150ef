"""The names of a face that waits are loaded one by one, when they are first used."""

import subprocess
import sys
from pathlib import Path

import pytest

FACE = """from typing import TYPE_CHECKING
from autoconf_launch.core import attach
if TYPE_CHECKING:
    from .light import LIGHT, weight
    from .heavy import HEAVY
else:
    __getattr__ = attach(__name__, {".light": "LIGHT weight", ".heavy": "HEAVY"})
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    folder = tmp_path / "room"
    folder.mkdir()
    (folder / "__init__.py").write_text(FACE)
    (folder / "light.py").write_text("LIGHT = 1\nweight = 2\n")
    (folder / "heavy.py").write_text("HEAVY = 3\n")
    return tmp_path


def print_it(code: str, folder: Path) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_name_loads_its_own_module_alone(room: Path) -> None:
    code = "import sys; from room import LIGHT, weight; print(LIGHT, weight, *sys.modules)"
    words = print_it(code, room).split()
    assert words[:2] == ["1", "2"]
    assert "room.light" in words
    assert "room.heavy" not in words


def test_modules_are_still_found_below_a_face(room: Path) -> None:
    assert print_it("from room import heavy; print(heavy.HEAVY)", room) == "3\n"


def test_an_unknown_name_is_an_import_error(room: Path) -> None:
    code = "try:\n    from room import NOBODY\nexcept ImportError as e:\n    print(e)"
    assert "cannot import name 'NOBODY' from 'room'" in print_it(code, room)
