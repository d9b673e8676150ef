#!/bin/bash
# Measures one GPU in nine minutes; README.md says what, and how to send the results.
#   bash benchmarks/gpu/measure.sh                    results in gpu_out/, or in $OUT
#   ONLY='predicted|hf' bash benchmarks/gpu/measure.sh    some parts
#   MODEL=tiny bash benchmarks/gpu/measure.sh         a rehearsal of the script, also without a GPU
# PY is the Python to use (python3), GPU its name in our tables, LIMIT the seconds of the whole run.
# Each part has a time limit, and a part that fails or is cut never stops the others.
set -u
cd "$(dirname "$0")/../.." || exit
ROOT=$PWD; HERE=$ROOT/benchmarks/gpu; PY=${PY:-python3}; LIMIT=${LIMIT:-535}; ONLY=${ONLY:-.}
OUT=${OUT:-gpu_out}; mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd); LOG=$OUT/measure.log; : > "$LOG"
WORK=$(mktemp -d)
trap 'pack; rm -rf "$WORK"' EXIT
trap 'exit 143' TERM INT
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TOKENIZERS_PARALLELISM=false
export XDG_DATA_HOME=$WORK/history TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton

MODEL=${MODEL:-gpt2-large}; BATCH=${BATCH:-32}; FIRST=${FIRST:-2}; SMALL=gpt2
PREDICTED_S=70; ONE_GPU_S=${ONE_GPU_S:-190}; HF_SIZE="--hidden_size 1024 --layers 12 --sequence 512"; HF_DEVICE=--bf16
if [ "$MODEL" = tiny ]; then
  BATCH=8; FIRST=1; SMALL=tiny; PREDICTED_S=20; HF_SIZE="--hidden_size 64 --layers 2 --sequence 64"
fi
nvidia-smi > "$OUT/env.txt" 2>&1 || HF_DEVICE=--use_cpu

pack() { # the results folders of all tunes as one archive; written whole or not at all
  (cd "$WORK" && find ./*/autotuning_results ./*/tune/autotuning_results ./compiled -type f -size -2M -print0 2> /dev/null |
    tar czf raw.tgz --null -T - && mv raw.tgz "$OUT/")
}

part() { # NAME SECONDS COMMAND...: in a folder of its own, never longer than the time that is left
  local name=$1 most=$2 began=$SECONDS left=$((LIMIT - SECONDS)) code; shift 2
  [[ $name =~ ^($ONLY)$ || $ONLY = . ]] || return 0
  [ "$left" -lt 8 ] && { echo "== $name skipped: $left s left" | tee -a "$LOG"; return; }
  [ "$most" -gt "$left" ] && most=$left
  echo "== $name starts at $SECONDS s, limit $most s" | tee -a "$LOG"
  mkdir -p "$WORK/$name"
  (cd "$WORK/$name" && timeout -k 5 "$most" "$@") >> "$LOG" 2>&1; code=$?
  echo "== $name ended with $code after $((SECONDS - began)) s" | tee -a "$LOG"
  pack
}

tune() { # NAME SECONDS FLAGS AND SCRIPT...: a quick tune without earlier times
  part "$1" "$2" "$PY" -m autoconf_launch tune --num_gpus=1 --no-history --effort=quick "${@:3}"
}

if [ -d .whl ]; then # a machine without a registry: packages come with the repository
  $PY -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$WORK/site" .whl/*.whl >> "$LOG" 2>&1 || exit
  export PYTHONPATH=$WORK/site
fi
GPU=${GPU:-$($PY "$HERE/planned.py")}
SCRIPT=("--arg=gradient_accumulation_steps=--accumulation" "$HERE/train.py" --precision=bf16)

# The most valuable parts first.
part env 30 bash -c "$PY $HERE/card.py 2>&1 | tee -a $OUT/env.txt"
part predicted 85 $PY "$HERE/predicted.py" --model=$MODEL --gpu="$GPU" --global-batch=$BATCH --seconds=$PREDICTED_S --out="$OUT/predicted.csv"
part one_gpu $ONE_GPU_S $PY "$HERE/one_gpu.py" --model=$MODEL --gpu="$GPU" --global-batch=$BATCH --first=$FIRST --seconds=$((ONE_GPU_S - 8)) --folder=. --out="$OUT/one_gpu.json"
tune oom 110 --budget=4trials --soak-steps=0 "${SCRIPT[@]}" --model=$MODEL --batch_size=$((2 * BATCH)) --accumulation=1
tune engine 50 --budget=35s "$ROOT/examples/01_pretrain_gpt/train.py" --config "$ROOT/examples/01_pretrain_gpt/config.json"
tune hf 90 --budget=4trials --soak-steps=10 "$ROOT/examples/03_hf_trainer/train.py" --output_dir=out --per_device_train_batch_size=4 --gradient_accumulation_steps=8 $HF_DEVICE $HF_SIZE --samples=4096 --report_to=none
part doctor 30 $PY -m autoconf_launch doctor
part fit 20 $PY -m autoconf_launch fit --model=gpt2-large --seq=1024 --global-batch=32 --zero=0 --precision=bf16
part plan 20 $PY -m autoconf_launch plan --model=gpt2-large --cluster="1x$GPU" --seq=1024 --global-batch=32 --precision=bf16 --trainer=native
# By itself `make test-gpu` takes about 5 minutes; what is left of this run is for its first tests.
part tests 75 $PY -m pytest -v -p no:cacheprovider --tb=short --durations=0 "$ROOT/tests/gpu"
# A second run has time for these: ONLY='compile|compiled|memory_limit|noise'
tune compile 100 --budget=4trials --soak-steps=0 --knob='--compile=[0,1]' --max_train_micro_batch_size_per_gpu=$((BATCH / 4)) "${SCRIPT[@]}" --model=$SMALL --batch_size=$((BATCH / 4)) --accumulation=4
part compiled 120 $PY "$HERE/predicted.py" --compiled --model=$MODEL --gpu="$GPU" --global-batch=$BATCH --out=compiled.csv
tune memory_limit 100 --memory-limit=24GB --budget=5trials --soak-steps=0 --knob='--checkpointing=["none","full"]' "${SCRIPT[@]}" --model=$MODEL --batch_size=$FIRST --accumulation=$((BATCH / FIRST))
# 20 launches of one configuration: the searched argument has no effect on a step.
tune noise 120 --tuner-type=gridsearch --tuner-early-stopping=100 --good-enough=0% --soak-steps=0 --budget=20trials --max_train_micro_batch_size_per_gpu=$((BATCH / 4)) --knob="--steps=$(seq -s, 101 120 | sed 's/.*/[&]/')" "${SCRIPT[@]}" --model=$SMALL --batch_size=$((BATCH / 4)) --accumulation=4 --steps=101

nvidia-smi --query-gpu=clocks.sm,temperature.gpu,power.draw,memory.used --format=csv >> "$OUT/env.txt" 2> /dev/null
echo "== all parts ended after $SECONDS s" | tee -a "$LOG"
