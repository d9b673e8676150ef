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


CODE = """import sys
from room import LIGHT, weight
print(LIGHT, weight, "room.light" in sys.modules, "room.heavy" in sys.modules)
try:
    from room import NOBODY
except ImportError as e:
    print(e)
from room import heavy
print(heavy.HEAVY)
"""


def test_a_name_loads_its_own_module_alone_and_modules_are_found_below(room: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=room, capture_output=True, text=True, check=True
    )
    loaded, unknown, below = done.stdout.splitlines()
    assert loaded == "1 2 True False"
    assert "cannot import name 'NOBODY' from 'room'" in unknown
    assert below == "3"
