"""``python -m autoconf_launch`` is the command ``autoconf-launch``."""

import sys

from autoconf_launch.launcher.cli import main

if __name__ == "__main__":
    sys.exit(main())
