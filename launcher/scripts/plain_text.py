"""A file's text, where it has one of a sane size. Not: what it means."""

from __future__ import annotations

from pathlib import Path

from ..config_file import MOST_BYTES


def plain_text(path: Path) -> str:
    """Empty where the file is missing, too large or no text."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
