"""Flags that may stand before the script on the command line."""

from .flag_table import add_host_flags, make_parser
from .flags import (
    is_for_tune,
    launch_flags,
    own_flag,
    parse_request,
    request_of_hosts,
    require_use,
    typed_flags,
)
from .values import parse_bytes, parse_steps
from .verb_parser import VerbParser, unknown_flag
