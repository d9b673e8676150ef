"""Flags: what may stand before the script on the command line. Not: the verbs."""
