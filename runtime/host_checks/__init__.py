"""Speed of each slot and each pair of hosts: the ranks of ``autoconf-launch doctor``."""
