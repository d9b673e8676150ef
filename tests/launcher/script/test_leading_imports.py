"""The imports of a script that a fork server may make before it begins."""

import pytest

from autoconf_launch.launcher.script import leading_imports

TRAINER = '"""Trains."""\nimport os\nimport torch\nfrom transformers import Trainer\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TRAINER, ("torch", "transformers:Trainer"), id="known packages, in order"),
        pytest.param(
            f"from __future__ import annotations\n{TRAINER}x = 1\nimport numpy\n",
            ("torch", "transformers:Trainer"),
            id="up to the first statement that does something",
        ),
        pytest.param(
            "import torch\nimport mine\nimport transformers\n",
            ("torch",),
            id="up to the first module that is not known",
        ),
        pytest.param(
            "import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch\n",
            (),
            id="none if torch comes after a variable",
        ),
        pytest.param("import deepspeed\nimport torch\n", (), id="none if something patches torch"),
        pytest.param("import numpy\nprint(1)\n", (), id="none without torch"),
        pytest.param("import torch.nn as nn\n", ("torch.nn",), id="a part of torch"),
        pytest.param("from . import torch\n", (), id="none of a package's own modules"),
        pytest.param("import torch\nfrom torch.nn import *\n", ("torch",), id="no star"),
        pytest.param("not python(", (), id="none of what is not Python"),
    ],
)
def test_leading_imports_end_where_something_else_begins(
    text: str, expected: tuple[str, ...]
) -> None:
    assert leading_imports(text) == expected
