"""Data that people edit, and its loader. Not: any decision what to try."""

from .loader import Section, SpaceKnob, default_space, parse_space, parse_text
from .merge import FOREIGN, KnobRules, NativeRules, ZeroSearch, given_knobs, zero_choices

__all__ = [
    "FOREIGN",
    "KnobRules",
    "NativeRules",
    "Section",
    "SpaceKnob",
    "ZeroSearch",
    "default_space",
    "given_knobs",
    "parse_space",
    "parse_text",
    "zero_choices",
]
