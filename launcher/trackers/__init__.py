"""Trackers, which keep the runs of a study: one row each.

A tracker's library is imported only in its own process (outlet).
"""

from .base import TRACKERS, Feed, Tracker, check_tracking, feed_of, find_tracker, read_key
from .outlet import track_events
