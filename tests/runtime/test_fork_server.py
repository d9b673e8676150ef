"""A rank that a fork server forked against the same script in a new interpreter."""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import TASK_VARIABLE, FailureKind, Mode, RankTask
from autoconf_launch.launcher.engines import ForkServerEngine, JobEnd, LocalEngine
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

TRAIN = Path(__file__).parents[1] / "end_to_end" / "scripts" / "train.py"
FACTS = """
import gc, json, os, resource, signal, sys, threading
import __main__
handlers = [str(signal.getsignal(n)).split(" at ")[0] for n in sorted(signal.valid_signals())]
with open("/proc/self/status") as status:
    wanted = ("SigBlk", "SigIgn", "SigPnd", "ShdPnd", "Umask", "Cpus_allowed_list", "Threads")
    status = [line.split() for line in status if line.startswith(wanted)]
print(json.dumps({
    "argv": [sys.argv, sys.orig_argv, sys.executable, str(sys.flags)],
    "main": [sorted(vars(__main__)), __name__, __file__, __package__, __cached__],
    "main is here": vars(sys.modules["__main__"]) is globals(),
    "path": [sys.path, os.getcwd()],
    "environ": sorted(i for i in os.environ.items() if i[0] != "AUTOCONF_LAUNCH_JOB"),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "streams": [
        (s.encoding, s.errors, s.line_buffering, s.write_through, s.name, type(s.buffer).__name__)
        for s in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "signals": [status, handlers],
    "limits": [resource.getrlimit(number) for number in range(10)],
    "hooks": [sys.excepthook is sys.__excepthook__, gc.isenabled()],
    "tree": [os.getpid() == os.getpgid(0), os.getppid() == os.getsid(0)],
    "threads": [threading.current_thread() is threading.main_thread(), threading.active_count()],
}))
"""
VARIABLES = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
WAS_FORKED = "import sys; print('torch' in sys.modules)\n"


@dataclass(frozen=True)
class Bench:
    """Runs scripts in a folder, forked or spawned."""

    forking: ForkServerEngine
    folder: Path

    def plan(self, script: str, *, ranks: int = 1, module: bool = False) -> LaunchPlan:
        path = self.folder / "script.py"
        path.write_text(script)
        program = ("-m", "script") if module else ("script.py",)
        return self.plan_of((*program, "a b", "--x"), ranks=ranks)

    def plan_of(
        self, program: tuple[str, ...], *, ranks: int = 1, limit_bytes: int | None = None
    ) -> LaunchPlan:
        task = RankTask(
            mode=Mode.MEASURE,
            folder=str(self.folder),
            attempt="now",
            memory_limit_bytes=limit_bytes,
        )
        return LaunchPlan(
            name="x",
            ranks=tuple(
                RankPlan(
                    rank=rank,
                    local_rank=rank,
                    argv=(sys.executable, "-u", *program),
                    environment=(
                        ("OMP_NUM_THREADS", "2"),
                        ("RANK", str(rank)),
                        (TASK_VARIABLE, task.to_variable()),
                    ),
                )
                for rank in range(ranks)
            ),
            working_directory=str(self.folder),
            folder=str(self.folder),
            task=task,
        )

    def fork(self, plan: LaunchPlan) -> tuple[JobEnd, str, str]:
        """The end of a launch, and what it wrote."""
        return self._end(self.forking, plan)

    def spawn(self, plan: LaunchPlan) -> tuple[JobEnd, str, str]:
        return self._end(LocalEngine(environment=VARIABLES, linger_s=0.2), plan)

    def output(self, script: str, *, ranks: int = 1) -> list[str]:
        """Lines that a forked script writes; it must end well."""
        end, out, err = self.fork(self.plan(script, ranks=ranks))
        assert end.exit_code == 0, err
        return out.splitlines()

    def _end(self, backend: LocalEngine, plan: LaunchPlan) -> tuple[JobEnd, str, str]:
        logs = [self.folder / name for name in ("stdout.log", "stderr.log")]
        for log in logs:
            log.unlink(missing_ok=True)
        job = backend.submit(plan)
        until_s = time.monotonic() + 60
        while (end := backend.poll([job])[0]) is None:
            backend.wait([job], 1.0)
            assert time.monotonic() < until_s, "it hangs"
        out, err = (log.read_text() for log in logs)
        return end, out, err


@pytest.fixture(scope="module")
def forking() -> Iterator[ForkServerEngine]:
    backend = ForkServerEngine(environment=VARIABLES, linger_s=0.2, grace_s=0.5)
    yield backend
    backend.close()


@pytest.fixture
def bench(forking: ForkServerEngine, tmp_path: Path) -> Bench:
    return Bench(forking, tmp_path)


@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_it_finds_what_a_new_interpreter_finds(bench: Bench, module: bool) -> None:
    plan = bench.plan(FACTS, module=module)
    forked, spawned = json.loads(bench.fork(plan)[1]), json.loads(bench.spawn(plan)[1])
    assert forked == spawned


def test_torch_is_there_before_the_first_line(bench: Bench) -> None:
    assert bench.output(WAS_FORKED) == ["True"]


ENDINGS = {
    "its end": "print('done')",
    "a code": "import sys; sys.exit(3)",
    "a text as code": "import sys; sys.exit('because')",
    "an error": "def gone():\n    raise KeyError('gone')\n\ntry:\n    1 / 0\nfinally:\n    gone()",
    "a syntax error": "x = = 1",
    "an error of its own kind": "class Odd(BaseException): pass\nraise Odd('odd')",
    "a hook": "import sys\nsys.excepthook = lambda *e: print(e[0], e[2].tb_lineno)\n1 / 0",
    "exit handlers": "import atexit; atexit.register(print, 'bye'); 1 / 0",
    "a thread": "import threading, time\nthreading.Thread(\n"
    "    target=lambda: (time.sleep(0.1), print('after'))).start()",
    "leaving at once": "import os; os._exit(9)",
    "a signal": "import os; os.kill(os.getpid(), 11)",
}


@pytest.mark.parametrize("script", ENDINGS.values(), ids=ENDINGS.keys())
def test_it_ends_as_a_new_interpreter_does(bench: Bench, script: str) -> None:
    plan = bench.plan(script)
    forked, spawned = bench.fork(plan), bench.spawn(plan)
    assert (forked[0].exit_code, *forked[1:]) == (spawned[0].exit_code, *spawned[1:])


def test_a_fork_has_one_thread_and_no_cuda(bench: Bench) -> None:
    script = """
import os
print(len(os.listdir("/proc/self/task")))
import torch
print(torch.cuda.is_initialized())
"""
    assert bench.output(script) == ["1", "False"]


def test_a_large_product_does_not_hang_and_has_the_threads_asked_for(bench: Bench) -> None:
    script = """
import torch, os
torch.rand(700, 700) @ torch.rand(700, 700)
import numpy
numpy.ones((700, 700)) @ numpy.ones((700, 700))
many = len(os.listdir("/proc/self/task")) > 1
os.write(1, f"{torch.get_num_threads()} {many}\\n".encode())  # whole, whoever else prints
"""
    for _ in range(2):
        assert bench.output(script, ranks=2) == ["2 True"] * 2


def test_no_two_ranks_draw_the_same_numbers(bench: Bench) -> None:
    script = (
        "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1))"
    )
    one, other = bench.output(script, ranks=2)
    assert not set(one.split()) & set(other.split())


def test_code_of_the_user_is_read_anew_for_each_trial(bench: Bench) -> None:
    helper = bench.folder / "helper.py"
    script = "import sys; print('helper' in sys.modules); import helper; print(helper.VALUE)"
    helper.write_text("VALUE = 1")
    before = bench.output(script)
    helper.write_text("VALUE = 'another'")
    assert (before, bench.output(script)) == (["False", "1"], ["False", "another"])


def test_what_a_script_changes_stays_in_its_trial(bench: Bench) -> None:
    script = """
import json, os, sys, torch
print(hasattr(json, "odd"), "odd" in sys.modules, "ODD" in os.environ, torch.get_default_dtype())
json.odd = sys.modules["odd"] = json
os.environ["ODD"] = "1"
torch.set_default_dtype(torch.float64)
"""
    for _ in range(2):
        assert bench.output(script) == ["False False False torch.float32"]


def test_a_module_beside_the_script_wins_over_one_that_was_imported(bench: Bench) -> None:
    (bench.folder / "queue.py").write_text("OURS = True")
    script = "import sys, queue; print('torch' in sys.modules, hasattr(queue, 'OURS'))"
    assert bench.output(script) == ["False True"]


def test_a_rank_that_takes_too_much_memory_says_so_as_a_new_interpreter_would(
    bench: Bench,
) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}}
    (bench.folder / "config.json").write_text(json.dumps(config))
    program = (str(TRAIN), "--config", "config.json", "--width", "2500")
    plan = bench.plan_of(program, limit_bytes=60_000_000)
    for end, _, _ in (bench.fork(plan), bench.spawn(plan)):
        assert isinstance(end.outcome, FailedTrial), end
        assert end.outcome.failure.kind is FailureKind.OUT_OF_MEMORY
        assert end.outcome.memory is not None
        assert end.outcome.memory.limit_bytes == 60_000_000


def test_a_rank_finds_its_job_where_others_look_for_it(bench: Bench) -> None:
    script = """
import os
with open("/proc/self/environ", "rb") as file:
    print(f"AUTOCONF_LAUNCH_JOB={os.environ['AUTOCONF_LAUNCH_JOB']}".encode() in file.read())
"""
    assert bench.output(script) == ["True"]
    assert "AUTOCONF_LAUNCH_JOB" not in os.environ
