"""What ``parallel_cpu.py`` trains."""
