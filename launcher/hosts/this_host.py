"""Which names and addresses are this machine's own."""

from __future__ import annotations

import socket
from functools import cache

LOCAL = "localhost"


@cache
def is_this_machine(host: str) -> bool:
    """Whether a name or an address is one of this machine's own."""
    own = socket.gethostname()
    if host in (LOCAL, own, own.partition(".")[0]):
        return True
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    import psutil  # the flags start without it

    interfaces = psutil.net_if_addrs().values()
    addresses = {a.address.partition("%")[0] for interface in interfaces for a in interface}
    return any(
        a.startswith("127.") or a == "::1" or a.partition("%")[0] in addresses for a in found
    )
