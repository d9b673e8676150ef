import socket

from autoconf_launch.launcher.machine import free_port


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))


def test_a_port_in_use_is_not_given() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        assert free_port() != listener.getsockname()[1]
