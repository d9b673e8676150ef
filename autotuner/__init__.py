"""Decides what to try next, from values alone: no files, clocks, processes or torch."""
