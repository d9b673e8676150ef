"""``fit`` and ``plan`` for a script as it is: stopped at its first forward pass. No training."""
