"""Files and trackers of a trial, kept away from the user's own."""

from .after_import import change_on_import, safely
from .left_behind import Surroundings
