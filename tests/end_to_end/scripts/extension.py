"""A script that builds a tiny extension of torch, with a compiler that may never end."""

import os
import sys
from pathlib import Path

from torch.utils import cpp_extension

compiler = Path("compiler")
compiler.write_text(
    '#!/bin/sh\ncase "$*" in *" -c "*) [ -e "$0.hangs" ] && sleep 1000;; esac\nexec g++ "$@"\n'
)
compiler.chmod(0o755)
os.environ["CXX"] = str(compiler.absolute())
Path("tiny.cpp").write_text('extern "C" int seven() { return 7; }\n')
cpp_extension.load("tiny", ["tiny.cpp"], is_python_module=False)
sys.stdout.write("built\n")
