#!/usr/bin/env bash
# Builds a GPU that computes nothing (see device.h) and an environment with torch for CUDA.
#     tests/null_gpu/build.sh FOLDER && . FOLDER/env.sh && FOLDER/venv/bin/python …
# Needs gcc, a Python of at least 3.10 (PYTHON312, or python3.12) and 6 GB; the first run downloads 3 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/bin"
to=$(cd "$1" && pwd)
python=$to/venv/bin/python

if ! [ -e "$to/.installed" ]; then
    "${PYTHON312:-python3.12}" -m venv --clear "$to/venv"
    "$python" -m pip install --quiet torch==2.11.0  # of PyPI: for CUDA 13
    touch "$to/.installed"
fi
cuda=$("$python" -c 'import nvidia; print(*nvidia.__path__)')/cu13/include

# One library under the names that are opened by name; the loader finds that it is preloaded.
gcc -O1 -fPIC -shared -Wall -Wno-unused -I"$here/include" -I"$cuda" -Wl,-soname,libcuda.so.1 \
    -o "$to/libcuda.so.1" "$here"/*.c
ln -sfn libcuda.so.1 "$to/libnvidia-ml.so.1"
install -m 755 "$here/nvidia-smi" "$to/bin/nvidia-smi"
cat > "$to/env.sh" <<S
export LD_PRELOAD=$to/libcuda.so.1 LD_LIBRARY_PATH=$to PATH=$to/bin:\$PATH
export NULLGPU_TABLE=\${NULLGPU_TABLE:-$to/processes}
S
echo "Built. Use it: . $1/env.sh, then $1/venv/bin/python"
