import subprocess
import sys

import pytest

CODE = """
import importlib, pkgutil, sys
from autoconf_launch import autotuner
for module in pkgutil.walk_packages(autotuner.__path__, "autoconf_launch.autotuner."):
    importlib.import_module(module.name)
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """Modules that there are once all of the package is imported."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["torch", "xgboost", "optuna"])
def test_deciding_imports_nothing_heavy(module: str, imported: set[str]) -> None:
    assert module not in imported
