#!/usr/bin/env bash
# What is to be run first wherever a GPU can be had, in six parts of less than nine minutes each:
#
#     OUT=gpu-session tests/gpu/session.sh N      # N from 1 to 6, or all
#
#   1  does it run: CUDA graphs, ddprun doctor --gpu, tests of devices and optimizers, a GPT
#   2  op table and gradients
#   3  linear algebra and FFT; every kernel under compute-sanitizer
#   4  single ops beside PyTorch on the same GPU
#   5  a GPT and a ResNet beside PyTorch, eager and by torch.compile
#   6  several ranks, on one GPU too, with the CPU's bits
#
# Logs go to $OUT. The exit code is 1 where something failed; what cannot be run is told in a line "left out".
# PYTHON is the interpreter (default: python). On a machine without a network, the wheels in the folder WHEELS (default:
# wheels/ here), without what they depend on, go into a new environment first, before what PYTHON has; NAME.whl.00,
# NAME.whl.01 ... are parts of one, as `split -d -b 60M` makes them.
# SMALL=1 takes small sizes and few tests. A rehearsal without a GPU:
#
#     SMALL=1 PYTHONPATH=tests/fake_cuda tests/gpu/session.sh all
set -uo pipefail
cd "$(dirname "$0")/../.."
part=${1:-}
OUT=$(realpath -m "${OUT:-gpu-session}") python=${PYTHON:-python} small=${SMALL:-}
mkdir -p "$OUT"
if [ "$part" = all ]; then
    failed=0
    for each in 1 2 3 4 5 6; do "$0" "$each" || failed=1; done
    exit "$failed"
fi
[[ "$part" =~ ^[1-6]$ ]] || { echo "session.sh: give a part from 1 to 6, or all; got '$part'" >&2; exit 2; }
exec > >(tee "$OUT/part$part.log") 2>&1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE
limit=${LIMIT:-530} failed=0

left_out() { echo "left out: $*"; }
# A step of the part, within what is left of its time.
step() {
    echo "== $* ($SECONDS s)"
    timeout -k 5 $((limit > SECONDS ? limit - SECONDS : 1)) "$@"
    local code=$?
    [ "$code" = 0 ] && return
    [ "$code" = 124 ] && echo "FAILED: no end within the part's $limit s" || echo "FAILED: exit code $code"
    failed=1
}
tests() {
    if "$python" -c "import pytest, xdist" 2>/dev/null; then
        step "$python" -m pytest -m gpu -q -p no:cacheprovider "$@"
    else
        left_out "the tests $* (pytest and pytest-xdist are needed)"
    fi
}

wheels=${WHEELS:-wheels}
if [ -d "$wheels" ]; then
    for first in "$wheels"/*.whl.00; do
        [ -e "$first" ] && cat "${first%.00}".[0-9][0-9] >"${first%.00}" && rm "${first%.00}".[0-9][0-9]
    done
    made=${TMPDIR:-/tmp}/ddpgrad-gpu-session
    if [ ! -x "$made/bin/python" ]; then
        "$python" -m venv "$made"
        "$made/bin/python" -m pip install -q --no-index --no-deps "$wheels"/*.whl || exit 1
        # What is here already is found behind what was carried.
        "$python" -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' \
            >"$("$made/bin/python" -c 'import site; print(site.getsitepackages()[0])')/already-here.pth"
    fi
    python=$made/bin/python
fi

echo "== part $part of $(git rev-parse --short HEAD 2>/dev/null || echo 'a tree without git') at $(date -u +%FT%TZ)"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
else
    echo "no nvidia-smi"
fi
"$python" - <<'END' || { echo "FAILED: $python does not load ddpgrad, or finds no GPU"; exit 1; }
import platform, sys
from importlib import metadata
print("Python", platform.python_version(), sys.executable)
for name in ("numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nccl-cu12", "nvidia-cudnn-frontend", "torch", "pytest"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is not installed")
from ddpgrad import cuda
sys.exit(cuda.why_not())
END
launch=("$python" -m ddpgrad.launcher)
option=${small:+--small}
workers=$(($(nproc) < 8 ? $(nproc) : 8))
[ -n "$small" ] && workers=0 # a rehearsal has few tests

case $part in
1)
    step "$python" tests/gpu/captured_steps.py $option
    step "${launch[@]}" doctor --gpu
    tests tests/backend/test_cuda.py tests/optim/test_on_gpu.py -n 0
    sizes=(--layers 4 --width 256 --heads 4 --context 256 --steps 100)
    [ -n "$small" ] && sizes=(--layers 1 --width 16 --heads 2 --context 16 --batch 8 --steps 6)
    rm -rf "$OUT/gpt"
    step "${launch[@]}" -n 1 examples/train_gpt.py --device cuda --run "$OUT/gpt" "${sizes[@]}"
    ;;
2)
    chosen=(-n "$workers")
    [ -n "$small" ] && chosen+=(-k "softmax or where or matmul")
    tests tests/ops tests/amp tests/autograd tests/utils "${chosen[@]}"
    ;;
3)
    tests tests/ops/test_linalg.py -n 0
    step "$python" tests/gpu/kernels.py --what linalg
    if command -v compute-sanitizer; then
        for tool in memcheck racecheck; do
            step compute-sanitizer --tool "$tool" --error-exitcode 1 "$python" tests/gpu/kernels.py --types float32
        done
    else
        left_out "memcheck and racecheck (compute-sanitizer is not installed); the kernels run without"
        step "$python" tests/gpu/kernels.py --types float32
    fi
    ;;
4) step "$python" tests/gpu/ops_beside_torch.py $option ;;
5)
    step "$python" tests/gpu/models_beside_torch.py $option ${small:+--steps 3}
    step "$python" examples/benchmarks/gpu_counts.py
    ;;
6)
    tests tests/distributed/test_contract.py tests/distributed/test_names.py -n 0
    tests tests/distributed/test_fully_shard_on_gpus.py -n 0
    steps=$([ -n "$small" ] && echo 4 || echo 30)
    for ranks in 2 4; do
        for procs in 1 "$ranks"; do
            job=("${launch[@]}" -n "$ranks" --procs "$procs" tests/jobs/same_bits.py --device cuda --steps "$steps")
            rm -rf "$OUT/bits"
            step "${job[@]}" --checkpoints "$OUT/bits" >"$OUT/said"
            cat "$OUT/said"
            grep -o '{"losses".*}' "$OUT/said" >"$OUT/bits-$ranks-$procs.json"
        done
        if [ -s "$OUT/bits-$ranks-1.json" ] && cmp "$OUT/bits-$ranks-1.json" "$OUT/bits-$ranks-$ranks.json"; then
            echo "$ranks ranks: the same bits in 1 process and in $ranks, through host memory"
        else
            echo "FAILED: $ranks ranks: other bits in $ranks processes than in 1"
            failed=1
        fi
    done
    ;;
esac
echo "== part $part: $([ "$failed" = 0 ] && echo 'all of it holds' || echo FAILED) ($SECONDS s)"
exit "$failed"
