"""A process that has imported torch and forks the ranks of short launches."""
