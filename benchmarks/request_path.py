"""Number of modules that the request of a ``tune`` passes between its argv and the journal.

A module is passed when a function of it is called, in the controller's main thread and before
the first ``started`` line is written, with argv, the request or a value made of it (``CARRIERS``)
among its arguments. It is come back to when such a call enters it again from another module, after
all of its earlier ones have returned.

Run: ``.venv/bin/python benchmarks/request_path.py [--calls]``; two CPU ranks, about 20 s.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType

from autoconf_launch.launcher import cli
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import Rendered, UserSettings
from autoconf_launch.launcher.tuning import TrialFiles, TuningJob

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "01_pretrain_gpt"
FOLDERS = ("core", "autotuner", "tuning_spaces", "launcher")
CARRIERS = (LaunchRequest, ScriptSource, UserSettings, TuningJob, TrialFiles, Rendered, LaunchPlan)
"""The request, values made of it, and objects that hold them."""


class JournalReachedError(BaseException):
    """The first ``started`` line is written."""


class RequestPath:
    """A profiler of the main thread that counts entries into modules of ours."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv
        self.entries: Counter[str] = Counter()
        self.calls: list[str] = []
        self._open: list[tuple[FrameType, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """See ``sys.setprofile``."""
        if event == "call" and (module := module_of(frame)) and self._carries(frame):
            self._enter(frame, module)
        elif event == "return":
            if self._open and self._open[-1][0] is frame:
                self._open.pop()
            if frame.f_code.co_name == "write_started":
                raise JournalReachedError

    def _enter(self, frame: FrameType, module: str) -> None:
        if module not in (name for _, name in self._open):
            self.entries[module] += 1
            self.calls.append(f"{module}.{frame.f_code.co_qualname}")
        self._open.append((frame, module))

    def _carries(self, frame: FrameType) -> bool:
        """True if argv, the request or a value made of it is among the arguments of a call."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(name) for name in names]
        lists = [value for value in values if isinstance(value, list)]
        is_argv = any(all(isinstance(x, str) for x in one) and one == self._argv for one in lists)
        return is_argv or any(isinstance(value, CARRIERS) for value in values)


def module_of(frame: FrameType) -> str | None:
    """``launcher.cli``; None for a module that is not ours."""
    return _module_in(frame.f_code.co_filename)


@cache
def _module_in(file: str) -> str | None:
    path = Path(file).resolve()  # the package is made of links to our folders
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS:
        return None
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def main() -> None:
    """Tune the first example in a copy, as far as its first trial, and print the counts."""
    argv = ["--autotuning=tune", "--num_gpus=2", "train.py", "--config", "config.json"]
    found = RequestPath(argv)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        os.chdir(folder)
        sys.setprofile(found)
        try:
            cli.main(argv)
        except JournalReachedError:
            pass
        finally:
            sys.setprofile(None)
            os.chdir(ROOT)
    again = sum(count > 1 for count in found.entries.values())
    print(f"{len(found.entries)} modules passed, {again} of them come back to")
    print("\n".join(f"{count:4d}  {name}" for name, count in found.entries.most_common()))
    if "--calls" in sys.argv:
        print("\n".join(found.calls))


if __name__ == "__main__":
    main()
