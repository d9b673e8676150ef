"""Layouts that must train as one process does: models, rows and the command of a rank."""
