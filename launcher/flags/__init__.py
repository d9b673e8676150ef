"""Flags that may stand before the script on the command line."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .flag_values import VerbParser, parse_bytes
    from .flags import own_flag, parse_request, usage
    from .plain_launch import launch_flags
else:
    __getattr__ = lazy_names(__name__, __file__)
