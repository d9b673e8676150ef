import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["torch", "xgboost", "optuna"])
def test_deciding_imports_nothing_heavy(module: str) -> None:
    code = (
        "import sys; import autoconf_launch.autotuner, autoconf_launch.autotuner.record_codec; "
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
