import subprocess
import sys

import pytest

CODE = (
    "import sys; from autoconf_launch.autotuner import *; "
    "import autoconf_launch.autotuner.record_codec; print(*sys.modules)"
)


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """Modules that there are once all that the package offers is imported."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["torch", "xgboost", "optuna"])
def test_deciding_imports_nothing_heavy(module: str, imported: set[str]) -> None:
    assert module not in imported
