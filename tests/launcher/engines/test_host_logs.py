"""Logs of launches over hosts."""

from __future__ import annotations

import pytest

from autoconf_launch.launcher.engines import SshEngine, hosts_job

from .conftest import Lab, eventually


def test_of_a_long_log_the_beginning_and_the_end_stay(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_job, "LOG_LIMIT_BYTES", 2 << 20)
    (lab.folder / "stdout.log").write_text("before\n")
    backend = SshEngine()
    job = backend.submit(
        lab.plan(
            "print('first'); sys.stdout.flush(); os.write(2, b'err'); "
            "[os.write(1, bytes(range(256)) * 40) for _ in range(1000)]; print('last'); report()"
        )
    )
    eventually(lambda: any(backend.poll([job])), 20.0)
    log = (lab.folder / "stdout.log").read_bytes()
    omitted = 256 * 40_000 + 11 - (2 << 20)
    assert log.startswith(b"before\nfirst\n")
    assert log.endswith(b"last\n")
    assert f"[autoconf-launch: {omitted} bytes are omitted here".encode() in log
    assert len(log) < (2 << 20) + 200
    assert (lab.folder / "stderr.log").read_bytes() == b"err"
