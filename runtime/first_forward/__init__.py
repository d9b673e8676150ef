"""Stops an external script at its first forward pass and describes its model."""

from .first_forward import FirstForwardProbe
