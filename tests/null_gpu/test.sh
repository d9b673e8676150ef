#!/usr/bin/env bash
# What a first day on a GPU does, on a GPU that computes nothing: the tests of tests/gpu, tunes of
# three examples as their guides have them, and memory planned beside memory used.
#     tests/null_gpu/test.sh FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
to=$(cd "$1" && pwd)
"$root/tests/null_gpu/build.sh" "$to"

if ! [ -e "$to/.ready" ]; then
    "$to/venv/bin/python" -m pip install --quiet --editable "$root" \
        pytest transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6 torch==2.11.0
    touch "$to/.ready"
fi
. "$to/env.sh"
export PATH=$to/venv/bin:$PATH NULLGPU_TABLE=$to/processes XDG_DATA_HOME=$to/user
examples=$root/examples
results=$to/tunes
rm -rf "$results" "$XDG_DATA_HOME" "$NULLGPU_TABLE"

tune() { # a folder below $results, MiB of the GPU, then the command
    mkdir -p "$results/$1"
    cd "$results/$1"
    echo "== tune $1 on $2 MiB"
    shift
    export NULLGPU_MIB=$1
    shift
    autoconf-launch tune --num_gpus 1 --effort quick "$@"
    [ -s autotuning_results/cmd_optimal.txt ] || { echo "$PWD: the tune has no winner."; exit 1; }
    unset NULLGPU_MIB
}

python -m pytest "$root/tests/gpu"
tune 01 81079 "$examples/01_pretrain_gpt/train.py" --config "$examples/01_pretrain_gpt/config.json"
tune 03 81079 "$examples/03_hf_trainer/train.py" --output_dir out --bf16 \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --num_train_epochs 1
for mib in 81079 24000 8000; do
    tune "04_$mib" "$mib" "$examples/04_any_script/train.py" --batch_size 64
done
python "$root/benchmarks/gpu/planned_memory.py"
