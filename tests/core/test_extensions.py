from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.core import installed_extensions

from ..packages import add_package, install_extension


def test_a_package_that_is_installed_later_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_extension(monkeypatch, tmp_path, "strategy", "first:First", name="first")
    assert "later" not in installed_extensions("strategy")
    add_package(tmp_path, "strategy", "later:Later", name="later")
    assert installed_extensions("strategy")["later"].value == "later:Later"
    assert installed_extensions("strategy")["first"].value == "first:First"
