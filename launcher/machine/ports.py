"""A free TCP port for the ranks' rendezvous. Not: a reservation."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of ``host`` (an address of this machine) that nobody listens on now.

    The port is free again when this returns, so another process can take it before rank 0
    listens there. The kernel hands out such ports in no order, which makes that rare; the
    launch then fails with "address already in use" and is worth one more try.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
    return port
