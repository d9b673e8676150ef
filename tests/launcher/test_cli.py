import subprocess
import sys

HEAVY = ("numpy", "psutil", "tabulate", "hjson", "rich", "hydra")
"""Packages that only some commands need."""


def test_the_command_itself_waits_for_no_import_of_a_verb() -> None:
    code = f"import sys, autoconf_launch.launcher.cli; print({{*{HEAVY}}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
