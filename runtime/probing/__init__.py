"""Parts of the probe (``runtime/probe.py``), each on its own. Not: importable without torch."""
