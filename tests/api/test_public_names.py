import subprocess
import sys

import autoconf_launch

PUBLIC = {
    "AutoConfigurator",
    "AutoconfError",
    "AutotuningSettings",
    "Candidate",
    "ConfigError",
    "Engine",
    "Failure",
    "FailureKind",
    "Layout",
    "Measurement",
    "ModelSpec",
    "Record",
    "SearchSpace",
    "Study",
    "Summary",
    "Trial",
    "build_space",
    "fit",
    "fit_inference",
    "initialize",
    "main",
    "plan",
    "plan_inference",
    "recommend",
    "summarise",
    "tune",
    "validate",
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(autoconf_launch.__all__) == PUBLIC


def test_each_public_name_can_be_imported() -> None:
    assert all(hasattr(autoconf_launch, name) for name in PUBLIC)


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = "import sys, autoconf_launch; sys.exit(bool({'torch', 'numpy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ctrl_c_while_a_finished_command_ends_changes_nothing() -> None:
    code = (
        "import atexit, os, signal, sys; from autoconf_launch.__main__ import main; "
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
