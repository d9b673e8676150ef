"""The public names of autoconf-launch."""
