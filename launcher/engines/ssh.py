"""Engines ``ssh`` and ``pdsh``: hosts of a hostfile, one by one or all at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..plan import StepSize
from .line import CONNECT_S
from .over_hosts import GroupEngine, PipeEngine, in_shell

_PDSH_SSH = "PDSH_SSH_ARGS_APPEND"


class SshEngine(PipeEngine):
    """An ssh for each host; it asks for no password, and its settings decide on host keys."""

    program = "ssh"

    def reach(
        self, host: str, folder: str, command: tuple[str, ...], step: StepSize | None
    ) -> tuple[str, ...]:
        access = self._access
        port = ("-p", str(access.port)) if access.port else ()
        options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
        there = in_shell(access, folder, command)
        return ("ssh", *options, *port, *access.arguments, "--", host, there)


class PdshEngine(GroupEngine):
    """Ssh to all hosts at once by ``pdsh``; no secret goes along."""

    program = "pdsh"

    def reach_all(
        self, hosts: tuple[str, ...], command: tuple[str, ...], exported: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Argv of pdsh, which reads ``%`` itself, and a colon or an at sign in a name."""
        access = self._access
        if odd := next((host for host in hosts if re.search("[:%@]", host)), None):
            raise ConfigError(
                f"pdsh cannot reach {odd}, as it reads colons, % and @ itself; give the host a "
                "plain name in ssh's settings, or use --launcher ssh."
            )
        options = [os.environ.get(_PDSH_SSH, ""), "-oBatchMode=yes"]
        options += [
            f"-oConnectTimeout={CONNECT_S}",
            *([f"-p{access.port}"] if access.port else ()),
        ]
        there = in_shell(access, str(Path.cwd()), command).replace("%", "%%") + " %n"
        words = ("pdsh", "-S", "-R", "ssh", "-f", str(len(hosts)), "-w", ",".join(hosts))
        return (*words, *access.arguments, there), {_PDSH_SSH: " ".join(options).strip()}
