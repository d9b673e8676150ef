"""Executed by ``tokens_total.py``: its names from files and arguments."""

import sys
from ast import literal_eval
from pathlib import Path

for argument in sys.argv[1:]:
    if "=" not in argument:
        exec(Path(argument).read_text())
        continue
    key, value = argument.removeprefix("--").split("=", 1)
    if key not in globals():
        raise ValueError(f"unknown key {key}")
    globals()[key] = literal_eval(value)
