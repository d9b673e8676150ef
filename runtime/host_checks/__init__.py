"""What each slot and each pair of hosts can do: the ranks of ``autoconf-launch doctor``."""
