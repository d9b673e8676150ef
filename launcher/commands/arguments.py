"""The arguments of a verb such as ``show``. Not: the launcher's own flags (flags)."""

from __future__ import annotations

import argparse
from typing import NoReturn

from autoconf_launch.core import ConfigError


class VerbParser(argparse.ArgumentParser):
    """Raises ConfigError, with the usage, where argparse would print and leave."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, and how it is said right."""
        usage = " ".join(self.format_usage().split()).removeprefix("usage: ")
        raise ConfigError(f"{message[0].upper()}{message[1:]}; use: {usage}")
