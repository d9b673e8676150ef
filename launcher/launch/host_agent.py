"""The agent of one host: ``python host_agent.py BEAT_S SILENCE_S PACKAGE,... [FOLDER NODE]``.

It uses only the standard library and ``agent.py``. JSON lines go both ways. It sends
``{"here": ...}``, a description of this host, receives the document, as ``agent.py`` has it, and
commands, sends ranks' output, their files and signs of life, and last the report. Ranks die when
the launcher closes the line, or when nothing came for ten seconds: a killed ``ssh`` leaves its far
end alive, and a lost link closes nothing.

The line is a pipe, standard input and output, or files of a folder that the launcher shares:
``K.down``, ``K.up``, ``K.out``, ``K.err`` and ``beat`` for node ``K``, which is a number or a
variable that has it. With a folder the agent of node 0 picks the port, and the others wait for
it, so that ranks start though no launcher lives.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import platform
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from autoconf_launch.core import SecretFilter
    from autoconf_launch.launcher.launch import agent, trial_logs
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import agent

# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH110, PTH112, PTH116, PTH118, PTH120, PTH123

BEAT_S, SILENCE_S = map(float, sys.argv[1:3])  # as engines/line.py has them
_PACKAGES = sys.argv[3].split(",")
_FOLDER, _NODE = sys.argv[4:6] or ("", "")
LOOK_S = 0.25  # between looks at the files of ranks
MOST_FILE_BYTES = 4 << 20  # of a rank's file that goes up; what a script writes beside may be huge
MOST_PENDING_BYTES = 4 << 20  # ranks' output waits in their pipes beyond this
FOLDERS = ("", "probe")  # below a trial's folder, whose files are read by the launcher
APPEARS_WITHIN_S = 5.0  # what another host has written, where caches hide it
COMPLAINT = "autoconf-launch: "  # begins what the launcher quotes
SIOCGIFADDR = 0x8915  # linux/sockios.h
GPUS_SCRIPT = os.path.join(os.path.dirname(__file__), "..", "machine", "gpus.py")
GPUS_WITHIN_S = 180.0


class Pipe(agent.Control):
    """The two ends of a pipe; what is written waits for whoever reads."""

    def __init__(self, read: int, write: int) -> None:
        super().__init__(read)
        self._write, self._unsent = write, b""
        self._heard_s = self._said_s = time.monotonic()
        os.set_blocking(write, False)

    def read_document(self) -> dict[str, Any] | None:
        """The first line that is more than a sign of life; None if it cannot be sent."""
        ready = select.poll()
        ready.register(self.descriptor, select.POLLIN)
        while not self.closed:
            if ready.poll(BEAT_S * 1e3):
                self._take()
            for line in self._lines(1):
                if "alive" not in line:
                    return line
            self.beat()
        return None

    def write(self, line: dict[str, Any]) -> None:
        """Send a line, or keep it until there is room."""
        self._unsent += json.dumps(line).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        self._said_s = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            try:
                while self._unsent:
                    self._unsent = self._unsent[os.write(self._write, self._unsent) :]
            except BrokenPipeError:
                self._unsent, self.closed = b"", True

    def beat(self) -> None:
        """Say that this end lives, and see whether the other one does."""
        if self._unsent:
            self.flush()
        elif time.monotonic() - self._said_s > BEAT_S:
            self.write({"alive": True})
        self.closed = self.closed or time.monotonic() - self._heard_s > SILENCE_S

    @property
    def is_full(self) -> bool:
        """True if the launcher reads more slowly than the ranks write."""
        return len(self._unsent) > MOST_PENDING_BYTES

    def drain(self) -> None:
        """Wait until everything was sent, or the launcher is gone."""
        while self._unsent and not self.closed:
            time.sleep(0.01)
            self.read_now()
            self.beat()

    def _take(self) -> None:
        super()._take()
        self._heard_s = time.monotonic()


class Folder(Pipe):
    """The line as files; each is opened anew to be read, as only then an NFS looks again."""

    def __init__(self, folder: str, node: int) -> None:
        _await_folder(folder)
        self._base, self._beat = os.path.join(folder, str(node)), os.path.join(folder, "beat")
        self._read_bytes, self._last_beat = 0, b""
        super().__init__(os.pipe()[0], os.open(f"{self._base}.up", agent.LOG_FLAGS, 0o600))

    def read_document(self) -> dict[str, Any] | None:
        """The order, which is there before the agents are started, or will be."""
        while not self.closed:
            for line in self.read_now():
                return line
            self.beat()
            time.sleep(LOOK_S)
        return None

    def read_now(self) -> list[dict[str, Any]]:
        """Lines that have come."""
        with contextlib.suppress(FileNotFoundError), open(f"{self._base}.down", "rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
            self._read_bytes += len(data)
            self._pending += data
        return self._lines()

    def beat(self) -> None:
        """Say that this end lives, and see whether the launcher's heart beats."""
        with contextlib.suppress(OSError), open(self._beat, "rb") as file:
            if (beat := file.read()) != self._last_beat:
                self._last_beat, self._heard_s = beat, time.monotonic()
        self.closed = self.closed or not os.path.isdir(os.path.dirname(self._base))
        super().beat()

    def drain(self) -> None:
        """See :meth:`Pipe.drain`; an order that no launcher will remove may have secrets."""
        super().drain()
        if self.closed:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._base}.down")

    def read_first_host(self) -> dict[str, Any]:
        """The first host's description by its agent; empty if the launcher is gone."""
        while not self.closed:
            path = os.path.join(os.path.dirname(self._base), "0.up")
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                line, end, _ = file.read().partition(b"\n")
                if end:
                    return dict(json.loads(line)["here"])
            self.beat()
            time.sleep(LOOK_S)
        return {}


def _await_folder(folder: str) -> None:
    until_s = time.monotonic() + APPEARS_WITHIN_S
    while not os.path.isdir(folder):
        if time.monotonic() > until_s:
            sys.exit(
                f"{COMPLAINT}{socket.gethostname()} does not see {folder}; work in a folder that "
                "all hosts share, or use --launcher ssh"
            )
        time.sleep(LOOK_S)


class HostWatch(agent.Watch):
    """The ranks of this host; their output and files go up the line."""

    def __init__(self, document: dict[str, Any], pipe: Pipe, streams: dict[int, int]) -> None:
        self._pipe, self._streams = pipe, streams
        self._over_s = time.monotonic() + (document.get("deadline_s") or float("inf"))
        self._folder: str | None = document["folder"]
        self._seen: dict[str, tuple[int, int]] = {}
        self._said: set[int] = set()
        self._looked_s = 0.0
        self._made = _make_folder(self._folder, document["marker"])
        if self._made:
            for name, text in document["files"].items():
                self._write(name, base64.b64decode(text))
        super().__init__(document, pipe)

    def _filter_output(self, filters: dict[int, SecretFilter]) -> list[trial_logs.FilteredLog]:
        """Filters of what goes up the line, or pipes in front of its files."""
        self._filters = filters if self._streams else {}
        return [] if self._streams else super()._filter_output(filters)

    def finish(self) -> None:
        """Send what is left of output and files, then the report; remove a folder made here."""
        self._pipe.drain()  # a full pipe takes no more, and the last lines would be lost
        self._forward_streams()
        for number, known in self._filters.items():
            self._pipe.write({"stream": number, "data": _text(known.end())})
        self._forward_files()
        printed = [os.fstat(number).st_size for number in (1, 2) if not self._streams]
        self._pipe.write({"report": self.report(), "printed_bytes": printed})
        self._pipe.drain()
        if self._made and self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, command: dict[str, Any]) -> None:
        if "file" in command:
            if self._made:
                self._write(command["file"], base64.b64decode(command["data"]))
            return
        super()._do(command)

    def _stop_listening(self) -> None:
        super()._stop_listening()
        for descriptor in self._streams:
            self._poller.register(descriptor, select.POLLIN)

    def _sleep(self, longest_s: float | None) -> None:
        if self._pipe.is_full:
            time.sleep(0.05)
        else:
            super()._sleep(min(LOOK_S, LOOK_S if longest_s is None else longest_s))
            self._forward_streams()
        if time.monotonic() - self._looked_s > LOOK_S:
            self._forward_files()
            self._looked_s = time.monotonic()
        if time.monotonic() > self._over_s:
            self._over_s = float("inf")
            self._pipe.write({"overdue": True})
            self._end(after_s=0.0, grace_s=self._document["grace_s"])
        self._pipe.beat()

    def _note(self, pid: int, code: int) -> None:
        super()._note(pid, code)
        if code:
            self._pipe.write({"failed": self._document["ranks"][self._pids.index(pid)]["rank"]})

    def _forward_streams(self) -> None:
        for descriptor, number in self._streams.items():
            with contextlib.suppress(BlockingIOError):
                while not self._pipe.is_full and (data := os.read(descriptor, 1 << 16)):
                    known = self._filters.get(number)
                    shown = known.feed(data) if known else data
                    self._pipe.write({"stream": number, "data": _text(shown)})

    def _forward_files(self) -> None:
        """Send each changed file of the ranks; results even if folders are shared."""
        for name, path in _files(self._folder):
            if not (self._made or name.startswith("result")):
                continue
            with contextlib.suppress(OSError), open(path, "rb") as file:
                about = os.fstat(file.fileno())
                now = about.st_mtime_ns, about.st_size
                if self._seen.get(name) != now and about.st_size <= MOST_FILE_BYTES:
                    self._seen[name] = now
                    self._pipe.write({"file": name, "data": _text(file.read())})

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._folder or "", name)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(f"{path}.new", "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)
        about = os.stat(path)
        self._seen[name] = about.st_mtime_ns, about.st_size


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _files(folder: str | None) -> Iterator[tuple[str, str]]:
    for below in FOLDERS if folder else ():
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder or "", below)) as found:
            for entry in found:
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    yield os.path.join(below, entry.name), entry.path


def _make_folder(folder: str | None, marker: str | None) -> bool:
    """Return whether a trial's folder is this host's own; otherwise the launcher shares it."""
    if folder is None or os.path.exists(os.path.join(folder, marker or "")):
        return False
    os.makedirs(folder, 0o700, exist_ok=True)
    return True


def kill_marked(variables: Sequence[str]) -> None:
    """End the ranks of launches whose controller has died; their agents end with them."""
    marks = {variable.encode() for variable in variables}
    until_s = time.monotonic() + agent.UNKILLABLE_S
    while marks and time.monotonic() < until_s:
        marked = [pid for pid, _ in agent.living_processes() if marks & set(_variables(pid))]
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _variables(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")
    return []


def describe_host() -> dict[str, Any]:
    """Facts about this host for the launcher, before it starts anything."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    address = connection[2] if len(connection) == 4 else _own_address()
    return {
        "name": socket.gethostname(),
        "address": address,
        "launcher_address": connection[0] if len(connection) == 4 else None,
        "port": _free_port(),
        "unix_s": time.time(),
        "versions": {"Python": platform.python_version()} | dict(_versions()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": _available_bytes(),
        "gpus": _gpus(),
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _available_bytes() -> int:
    """Memory that new processes can have (proc(5)); 0 if the kernel does not report it."""
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def _gpus() -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        command = (sys.executable, "-I", GPUS_SCRIPT)
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=GPUS_WITHIN_S, check=True
        )
        return list(json.loads(answer.stdout))
    return []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _own_address() -> str:
    """The address of this host's name, else of its first interface."""
    with contextlib.suppress(OSError):
        for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
            if not str(info[4][0]).startswith("127."):
                return str(info[4][0])
    found = (address for name, address in _interfaces() if name != "lo")
    return next(found, "127.0.0.1")


def _interfaces() -> Iterator[tuple[str, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                wanted = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, wanted)
                yield name, socket.inet_ntoa(answer[20:24])


def name_interface(address: str) -> None:
    """Have gloo use an interface that its peers can reach, unless the user has set it.

    By default gloo takes the address of the host's name, which many systems set to a loopback one.
    """
    for name, own in _interfaces():
        if own == address:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def lead_session() -> None:
    """Make this process the leader of a session, as a fork if it leads a group already."""
    if os.getsid(0) == os.getpid():
        return
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os._exit(min(255, abs(os.waitstatus_to_exitcode(status))))
    os.setsid()


def main() -> NoReturn:
    """Say what this host is, run the document that comes, report."""
    lead_session()
    pipe, streams = _open_folder() if _FOLDER else _open_pipe()
    agent.prepare_process(pipe)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    here = describe_host()
    pipe.write({"here": here})
    document = pipe.read_document()
    if isinstance(pipe, Folder) and document is not None:
        meet(document, pipe.read_first_host())
    if document is not None and document.get("ranks"):
        os.environ.update(document["environment"])
        name_interface(document["address"] or here["address"])
        kill_marked(document.get("orphans", ()))
        watch = HostWatch(document, pipe, streams)
        watch.start(agent.execute)
        watch.run()
        watch.sweep()
        watch.finish()
    os._exit(0)


def meet(document: dict[str, Any], first: dict[str, Any]) -> None:
    """Fill in the ranks' rendezvous address and port, unless the user has set them."""
    place = {"MASTER_ADDR": first.get("address"), "MASTER_PORT": first.get("port")}
    for rank in document.get("ranks", ()):
        variables = dict(rank["environment"])
        rank["environment"] = {
            name: value or str(place.get(name) or "") for name, value in variables.items()
        }


def _open_pipe() -> tuple[Pipe, dict[int, int]]:
    pipe = Pipe(os.dup(0), os.dup(1))
    return pipe, {_redirect(number): number for number in (1, 2)}


def _open_folder() -> tuple[Folder, dict[int, int]]:
    node = _NODE if _NODE.isdigit() else os.environ.get(_NODE, "")
    if not node.isdigit():
        sys.exit(f"{COMPLAINT}{socket.gethostname()} has no number in {_NODE}")
    folder = Folder(_FOLDER, int(node))
    for number, name in ((1, "out"), (2, "err")):
        path = os.path.join(_FOLDER, f"{node}.{name}")
        os.dup2(os.open(path, agent.LOG_FLAGS, 0o600), number)
    return folder, {}


def _redirect(number: int) -> int:
    """Put a pipe in place of a standard stream; the end that is read from."""
    read, write = os.pipe()
    os.dup2(write, number)
    os.close(write)
    os.set_blocking(read, False)
    os.set_inheritable(read, False)
    return read


if __name__ == "__main__":
    main()
