"""The profile run: a live model as a ModelSpec."""

from .profile import Profiler
from .trace import trace_model
