"""Every file name of a results folder, in one class, and sentences on file system errors.

A missing file, a wrong kind of file, too many open files and a refused process get no sentence: in
the command they are bugs of ours, whose traceback is wanted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX, FINAL_SUFFIX
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX
from autoconf_launch.core import OUTPUT, SAVED, DecodeError, ResultsFolderError

from .own_files import (
    make_folder,
    no_writing_by_others,
    open_file,
    plain_below,
    require_plain,
    why_not_ours,
)

_SIZE = r"[0-9][0-9.e+-]*"
_WORD = r"[A-Za-z0-9.~%+-]+"
_OF_A_TUNE = rf"z[0-3](_{_WORD})*_gas{_SIZE}_tmbspg{_SIZE}"
_OF_A_SEARCH = (
    rf"[\w.+-]+_{_SIZE}b_{_SIZE}nodes_tp_{_SIZE}_pp_{_SIZE}_cp_{_SIZE}_ep_{_SIZE}_mbs_{_SIZE}"
    r"(_act_ckpt_(None|[0-9]+)_num_mbs_act_(None|[0-9]+)_act_per_pipe_(None|[0-9]+)(_selective)?"
    r"|_vp_(None|[0-9]+)(_act_ckpt_([0-9]+|full|selective))?(_gbs_[0-9]+)?)"
)
"""A run's name in NeMo 1.0, or in NeMo 2.0 with recomputation and another batch at its end."""
_OF_AN_INFERENCE_SEARCH = rf"[\w.+-]+_tp{_SIZE}_pp{_SIZE}_bs{_SIZE}"
_SUFFIXES = "|".join(map(re.escape, (AGAIN_SUFFIX, FINAL_SUFFIX, SOAK_SUFFIX)))
_NAME = re.compile(rf"({_OF_A_TUNE}|{_OF_A_SEARCH}|{_OF_AN_INFERENCE_SEARCH})({_SUFFIXES})*")
_MOST_BYTES = 255
"""Limit of a file's name."""
PROFILE = "profile_model_info"
SECOND_PROFILE = "profile_other_batch"
DS_CONFIG = "ds_config"
CONFIG = "config"
CONFIG_STEMS = (DS_CONFIG, CONFIG)
METRICS_FILE = "metrics.json"
"""File names of a trial's configuration: DeepSpeed's, and any other framework's."""
CHOSEN_BY = "--results-dir and --exps-dir"
_WRITTEN_BY_SCRIPTS = frozenset({SAVED, OUTPUT})
"""Folders of a launch that may hold anything; they are not read."""
_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT
_RIGHTS = frozenset({errno.EACCES, errno.EPERM})
"""Denied access: to a file if one is named, otherwise perhaps to a process."""
_READ_ONLY = errno.EROFS
_GONE = frozenset(
    {
        errno.EIO,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ESHUTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EUCLEAN,
    }
)
"""Errors of a disk or file server that no longer answers, if a file is named: sockets have
none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPaths:
    """The folders of one tuning run; relative ones are made absolute.

    ``config_stem`` is in ``CONFIG_STEMS``; ``chosen_by`` names the flags that choose another
    folder, for errors; ``trusts_others``: folders that others own or can write are accepted.
    """

    results: Path
    exps: Path
    config_stem: str = DS_CONFIG
    chosen_by: str = CHOSEN_BY
    trusts_others: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", self.results.absolute())
        object.__setattr__(self, "exps", self.exps.absolute())

    @property
    def journal(self) -> Path:
        return self.results / "journal.jsonl"

    @property
    def lease(self) -> Path:
        return self.results / "controller.lease"

    @property
    def environment(self) -> Path:
        return self.results / "env.json"

    @property
    def profile(self) -> Path:
        return self.results / PROFILE

    @property
    def second_profile(self) -> Path:
        return self.results / SECOND_PROFILE

    @property
    def tracking(self) -> Path:
        return self.results / "tracking"

    def trial(self, name: str) -> Path:
        return self.results / name

    def config(self, folder: Path) -> Path:
        return folder / f"{self.config_stem}.json"

    def experiment(self, name: str) -> Path:
        """The request of one trial."""
        return self.exps / f"{name}.json"

    @property
    def summary_text(self) -> Path:
        return self.results / "summary.txt"

    @property
    def summary_json(self) -> Path:
        return self.results / "summary.json"

    @property
    def trials_csv(self) -> Path:
        return self.results / "trials.csv"

    @property
    def optimal_config(self) -> Path:
        return self.results / f"{self.config_stem}_optimal.json"

    @property
    def optimal_command(self) -> Path:
        return self.results / "cmd_optimal.txt"

    @property
    def optimal_script(self) -> Path:
        return self.results / "run_optimal.sh"

    @property
    def optimum(self) -> tuple[Path, ...]:
        return self.optimal_config, self.optimal_command, self.optimal_script

    def make(self) -> None:
        """Make both folders and check that they can be written.

        Raises:
            ResultsFolderError: they cannot; OSError passes if the disk is full.
        """
        for folder in (self.results, self.exps):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _require_writable(folder)
            except (PermissionError, FileExistsError, NotADirectoryError) as error:
                raise _unwritable(folder, error, self.chosen_by) from error
            except OSError as error:
                if error.errno in _NO_SPACE:
                    raise
                raise _unwritable(folder, error, self.chosen_by) from error

    def require_ours(self) -> None:
        """Refuse folders and files that others own or can write, and links in place of files.

        Raises:
            ResultsFolderError: there is one.
        """
        named = (self.journal, self.lease, self.environment, self.tracking, *self.optimum)
        files = (*named, self.summary_text, self.summary_json, self.trials_csv)
        for path in files:
            require_plain(path)
        for path in filter(Path.exists, (self.results, self.exps, *files)):
            self._require_ours(path)

    def make_below(self, folder: Path) -> None:
        """Make a folder below ``results``, and those above it.

        Raises:
            ResultsFolderError: a folder is a link or not ours, or cannot be made.
        """
        try:
            with no_writing_by_others():
                self.results.mkdir(parents=True, exist_ok=True)
                self._require_ours(self.results)
                below = folder.absolute().relative_to(self.results)
                for above in (*reversed(below.parents), below):
                    place = self.results / above
                    make_folder(place)
                    self._require_ours(place)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise
            raise _unwritable(folder, error, self.chosen_by) from error

    def write(self, path: Path, text: str) -> None:
        """Write a file below ``results``, whole or not at all, and the folders above it.

        Raises:
            ResultsFolderError: a folder on the way is a link or not ours, or it cannot be written.
        """
        path = path.absolute()
        self.make_below(path.parent)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(new, "w", encoding="utf-8", opener=open_file) as file:
                file.write(text)
            new.replace(path)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise
            raise _unwritable(path, error, self.chosen_by) from error

    def make_launch_folder(self, folder: Path) -> None:
        """Make the folder of a trial or profile run, or check that it can be used.

        Raises:
            ResultsFolderError: it, or a file in it, is a link or not ours.
        """
        make_folder(folder)
        for path in plain_below(folder, _WRITTEN_BY_SCRIPTS):
            self._require_ours(path)

    def _require_ours(self, path: Path) -> None:
        if self.trusts_others or not (why := why_not_ours(path)):
            return
        trust = " or use --trust-results" if self.chosen_by == CHOSEN_BY else ""
        change = "" if "belongs" in why else f"run chmod -R go-w {shlex.quote(str(path))}, "
        raise ResultsFolderError(
            f"{why}, so what is in it cannot be trusted; {change}choose another folder with "
            f"{self.chosen_by}{trust}."
        )

    def moved_aside(self) -> tuple[ResultsPaths, ...]:
        """All folders that results were moved aside to, the last written first."""
        named = re.compile(rf"{re.escape(self.results.name)}\.([1-9][0-9]*)")
        numbers = [
            int(match[1])
            for folder in self.results.parent.iterdir()
            if (match := named.fullmatch(folder.name))
        ]
        found = [self._aside(number) for number in numbers]
        written = {paths: _written_unix_s(paths.journal) for paths in found}
        return tuple(sorted(found, key=lambda paths: written[paths], reverse=True))

    def move_back(self, there: ResultsPaths) -> None:
        """Rename moved results to the folder that they came from, which is gone.

        Raises:
            ResultsFolderError: it cannot be moved.
        """
        try:
            self.results.rename(there.results)
            there.exps.mkdir(parents=True, exist_ok=True)
            for folder in there.results.iterdir():
                if (asked := self.experiment(folder.name)).exists():
                    asked.rename(there.experiment(folder.name))
            if self.exps.is_dir() and not any(self.exps.iterdir()):
                self.exps.rmdir()
        except OSError as error:
            raise _unwritable(self.results, error, self.chosen_by) from error

    def _aside(self, number: int) -> ResultsPaths:
        return replace(self, results=_aside(self.results, number), exps=_aside(self.exps, number))

    def move_aside(self) -> ResultsPaths:
        """Rename the results folder to the first free ``<name>.<n>``; returns the new paths.

        Requests of its trials go to a folder of the same number. Other files stay: several tunes
        may share one folder.

        Raises:
            ResultsFolderError: they cannot be moved.
        """
        number = 1
        while _aside(self.results, number).exists() or _aside(self.exps, number).exists():
            number += 1
        moved = self._aside(number)
        try:
            names = [folder.name for folder in self.results.iterdir() if folder.is_dir()]
            self.results.rename(moved.results)
            if self.exps.is_relative_to(self.results):
                return replace(moved, exps=moved.results / self.exps.relative_to(self.results))
            asked = [name for name in names if self.experiment(name).exists()]
            if asked:
                moved.exps.mkdir(parents=True)
            for name in asked:
                self.experiment(name).rename(moved.experiment(name))
        except OSError as error:
            raise _unwritable(self.results, error, self.chosen_by) from error
        return moved


def _require_writable(folder: Path) -> None:
    """Make a file and remove it; a link in its place is not written to."""
    probe = folder / f".writable.{os.getpid()}"
    probe.unlink(missing_ok=True)
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    probe.unlink()


def is_disk_full(error: OSError) -> bool:
    """True if an operation failed because the disk is full."""
    return error.errno in _NO_SPACE


def _aside(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}.{number}")


def _written_unix_s(journal: Path) -> float:
    try:
        return journal.stat().st_mtime
    except OSError:
        return 0.0


def _unwritable(folder: Path, error: OSError, chosen_by: str) -> ResultsFolderError:
    reason = error.strerror or str(error)
    return ResultsFolderError(
        f"results folder {folder} cannot be written ({reason}); choose another with {chosen_by}."
    )


def is_unwritable(error: OSError) -> bool:
    """True if a file is not accessible, by its permissions or its file system."""
    named = error.filename is not None
    return error.errno == _READ_ONLY or (named and error.errno in _RIGHTS)


def is_misnamed(error: OSError) -> bool:
    """True if no file system accepts such a path."""
    return error.errno in (errno.ENAMETOOLONG, errno.ELOOP) and error.filename is not None


def is_gone(error: OSError) -> bool:
    """True if a disk or a file server fails."""
    sure = error.errno in (errno.EIO, errno.ESTALE)
    return sure or (error.filename is not None and error.errno in _GONE)


def sentence_on(error: OSError) -> str | None:
    """The event, the file, and the remedy; None for an error outside file systems."""
    if is_disk_full(error):
        where = f" ({_name(error)})" if error.filename else ""
        return f"the disk is full{where}; make room, then run it again."
    if is_unwritable(error):
        return (
            f"{_name(error)} is not accessible ({error.strerror}); check its permissions and "
            "whether its file system can be written, then run it again."
        )
    if is_misnamed(error):
        return f"{_name(error)[:80]} cannot be a file ({error.strerror}); give another path."
    if is_gone(error):
        return (
            f"{_name(error)} cannot be reached any more ({error.strerror}); check its "
            "disk or file server, then run it again."
        )
    return None


def _name(error: OSError) -> str:
    name = error.filename or "a file"
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


@contextlib.contextmanager
def saved_pid(wanted: bool) -> Iterator[None]:
    """Keep ``<pid>.ds`` in the temporary folder, with our process id, while we live.

    A signal to that process reaches every rank.

    Raises:
        ResultsFolderError: the file cannot be written.
    """
    if not wanted:
        yield
        return
    path = pid_file(os.getpid())
    try:
        path.unlink(missing_ok=True)  # of a dead process that had our number
        with path.open("x") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:
        raise ResultsFolderError(
            f"{path} for --save_pid cannot be written: {error.strerror}; set TMPDIR to a folder "
            "that can."
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def pid_file(pid: int) -> Path:
    """The file of one launch, by the number of its first process."""
    return Path(tempfile.gettempdir()) / f"{pid}.ds"


def require_names(*names: str) -> None:
    """Refuse a name that no candidate and no launch of one has.

    Names in a journal are paths in the results folder, so they must not be the folder's own files
    or lead outside.

    Raises:
        DecodeError: there is one.
    """
    for name in names:
        if len(name) > _MOST_BYTES or not _NAME.fullmatch(name):
            raise DecodeError(f"{name!r} is not the name of a trial")
