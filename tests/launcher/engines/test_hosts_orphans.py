"""Leftovers of a dead controller on hosts end before a later launch begins there."""

from __future__ import annotations

from autoconf_launch.launcher.engines import SshEngine

from .conftest import Lab, eventually


def test_ranks_of_a_dead_controller_end_before_a_later_launch_begins(lab: Lab) -> None:
    dead, later = SshEngine(grace_s=0.3), SshEngine(grace_s=0.3)
    orphan = dead.submit(lab.plan("ready(); time.sleep(100)"))
    eventually(lambda: any(dead.poll([orphan])) or (lab.folder / "ready0").exists())
    later.end_orphan(orphan.handle, "anywhere")
    later.end_orphan("no handle; of ours", "anywhere")
    looks = f"sys.exit({orphan.handle!r} in open('left').read())"
    marks = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a JOB= > left"
    plan = lab.plan(f"os.system({marks!r}); {looks}", task=False)
    job = later.submit(plan)
    eventually(lambda: any(later.poll([job])), 10.0)
    eventually(lambda: any(dead.poll([orphan])), 10.0)
    (end,), (orphans_end,) = later.poll([job]), dead.poll([orphan])
    assert end is not None
    assert orphans_end is not None
    assert (end.exit_code, orphans_end.exit_code) == (0, 137)
