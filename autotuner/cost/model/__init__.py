"""Seconds of a training step by formula, for transformers on any layout."""
