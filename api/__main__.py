"""The command ``autoconf-launch``, also ``python -m autoconf_launch``."""

import signal
import sys


def main() -> int:
    """Import the command and run it; Ctrl-C during the import ends it without a traceback."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from autoconf_launch.launcher import cli

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = cli.main()
    if is_usual:  # a second Ctrl-C would end a finished command by the signal in place of its code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())
