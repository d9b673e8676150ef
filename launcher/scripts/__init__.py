"""The user's script: its text, files, configuration and start. Not: its framework (dialects)."""
