"""Memory on a GPU is what the driver counts, and a limit holds. Each test has a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

GIB = 2**30
START = """
import json, torch
from torch import nn
from autoconf_launch.core import encode
from autoconf_launch.runtime.observe import MemoryWatch
from autoconf_launch.runtime.rank import is_allocation_failure, start_meter
GIB = 2**30
device = torch.device("cuda", 0)
def take(size):
    return torch.empty(int(size), dtype=torch.uint8, device=device)
def is_refused(size):
    try:
        take(size)
    except RuntimeError as error:
        return is_allocation_failure(error)
    return False
"""


def answer(code: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-c", f"{START}\n{code}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_peak_is_what_the_allocator_reserved_and_the_context() -> None:
    use = answer("""
meter = start_meter(device, None, 0)
kept = take(GIB)
freed = take(GIB)
del freed
print(json.dumps(encode(meter.use())))
""")
    assert use["allocated_bytes"] == use["reserved_bytes"] == 2 * GIB
    assert 0.1 * GIB < use["peak_bytes"] - use["reserved_bytes"] < 2 * GIB
    assert use["peak_bytes"] < use["free_before_bytes"] <= use["limit_bytes"]


def test_a_limit_holds_with_the_context_until_it_is_lifted() -> None:
    said = answer("""
meter = start_meter(device, 4 * GIB, 0)
meter.enforce()
kept = take(2 * GIB)
asked = 4 * GIB - meter.use().peak_bytes + (1 << 21)
said = {"refused": is_refused(asked), "use": encode(meter.use())}
meter.lift()
print(json.dumps({**said, "lifted": not is_refused(asked)}))
""")
    assert said["refused"]
    assert said["lifted"]
    assert said["use"]["limit_bytes"] == said["use"]["free_before_bytes"] == 4 * GIB
    assert 2 * GIB < said["use"]["peak_bytes"] <= 4 * GIB


def test_what_another_process_holds_is_not_ours() -> None:
    use = answer("""
import subprocess, sys
code = "import torch; a = torch.ones(3 << 28, device='cuda'); print(1); input()"
command = [sys.executable, "-uc", code]
other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdout.read(1)
meter = start_meter(device, None, 0)
kept = take(GIB)
use = meter.use()
other.communicate(b"1")
print(json.dumps(encode(use)))
""")
    assert use["peak_bytes"] < 2 * GIB
    assert use["free_before_bytes"] < use["limit_bytes"] - 3 * GIB


def test_a_limit_above_the_device_is_the_devices_own() -> None:
    use = answer("""
meter = start_meter(device, 10**15, 0)
meter.enforce()
print(json.dumps(encode(meter.use())))
""")
    assert use["limit_bytes"] < 10**13


def test_an_external_scripts_limit_holds_and_weights_beyond_it_are_told() -> None:
    said = answer("""
watch = MemoryWatch()
watch.begin(nn.Linear(1024, 1024, device=device), 2 * GIB)
said = {"refused": is_refused(1.5 * GIB), "small": encode(watch.use(7, larger=False))}
watch.lift()
large = MemoryWatch()
try:
    large.begin(nn.Linear(1 << 15, 1 << 14, device=device), 2 * GIB)
except torch.OutOfMemoryError:
    said["large"] = encode(large.use(0, larger=False))
print(json.dumps(said))
""")
    assert said["refused"]
    assert said["small"]["limit_bytes"] == 2 * GIB
    assert not said["small"]["weights_alone"]
    assert said["large"]["weights_alone"]
