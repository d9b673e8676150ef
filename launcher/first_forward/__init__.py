"""fit and plan of a script: stopped at its first forward pass."""

from .answers import PeakOf, Room, fit_by_pieces, plan_by_pieces, rooms
from .command import ask_fit, ask_plan, command_of_plan, split_command
from .script import TracedScript, describe_script, trace_script
