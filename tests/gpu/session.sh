#!/usr/bin/env bash
# What is to be run first wherever a GPU can be had: one call of less than nine minutes, or six parts of as much each.
#
#     OUT=gpu-session tests/gpu/session.sh first  # what matters most of all parts, in one call
#     OUT=gpu-session tests/gpu/session.sh N      # N from 1 to 6, or all, one part after the other
#
#   1  does it run: CUDA graphs, ddprun doctor --gpu, tests of devices and optimizers, a GPT
#   2  op table and gradients
#   3  linear algebra and FFT; every kernel under compute-sanitizer
#   4  single ops beside PyTorch on the same GPU
#   5  a GPT and a ResNet beside PyTorch, eager and by torch.compile
#   6  several ranks, on one GPU too, with the CPU's bits
#
# Each step has a limit of its own, within what is left of the call's; one that fails or hangs does not stop the others.
# $OUT gets partN.log as it is written, and summary.txt: a line for each step when it has ended. The exit code is 1 where
# something failed; what cannot be run is told in a line "left out".
# LIMIT: seconds of the call (default: 530). PYTHON: the interpreter (default: python3 or python, whichever has CuPy).
# Wheels in the folder WHEELS (default: wheels/ here) come before what the interpreter has, without what they depend on.
# Kernels that a call has compiled are in $OUT/kernels.tar.gz: carry it as gpu-session/kernels.tar.gz (or KERNELS) to another machine,
# and a call there begins with them.
# SMALL=1 takes small sizes and few tests. A rehearsal without a GPU:
#
#     SMALL=1 PYTHONPATH=tests/fake_cuda tests/gpu/session.sh all
set -uo pipefail
cd "$(dirname "$0")/../.."
part=${1:-}
OUT=$(realpath -m "${OUT:-gpu-session}") small=${SMALL:-}
mkdir -p "$OUT"
if [ "$part" = all ]; then
    failed=0
    for each in 1 2 3 4 5 6; do "$0" "$each" || failed=1; done
    exit "$failed"
fi
[[ "$part" =~ ^([1-6]|first)$ ]] || { echo "session.sh: give a part from 1 to 6, first, or all; got '$part'" >&2; exit 2; }
exec > >(tee "$OUT/part$part.log") 2>&1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE
limit=${LIMIT:-530} failed=0 rough=$(mktemp -d)
cache=${CUPY_CACHE_DIR:-$HOME/.cupy/kernel_cache} kernels=${KERNELS:-gpu-session/kernels.tar.gz}
keep_kernels() { [ -n "$small" ] || [ ! -d "$cache" ] || tar -czf "$OUT/kernels.tar.gz" -C "$cache" .; }
trap 'keep_kernels; rm -rf "$rough"' EXIT
[ -n "$small" ] || [ ! -s "$kernels" ] || { mkdir -p "$cache" && tar -xzf "$kernels" --skip-old-files -C "$cache"; }

left_out() { echo "left out: $*"; }
# A line of the summary: verdict, and what it is of.
judged() {
    [ "$1" = ok ] || { echo "FAILED: $2"; failed=1; }
    printf 'part %s: %-8s%s\n' "$part" "$1" "$2" >>"$OUT/summary.txt"
}
# The most seconds that a step may take, and the step.
step() {
    local most=$1 left=$((limit - SECONDS)) began=$SECONDS code
    shift
    [ "$left" -ge 10 ] || { judged FAILED "not begun, the $limit s of this call are used up: $*"; return; }
    [ -z "$small" ] || most=$((4 * most)) # without a GPU
    [ "$most" -lt "$left" ] || most=$left
    echo "== $* ($SECONDS s; $most at most)"
    timeout -k 5 "$most" "$@"
    code=$?
    case $code in
    0) judged ok "$((SECONDS - began)) s: $*" ;;
    124 | 137) judged FAILED "$((SECONDS - began)) s, stopped at the limit of $most s or killed: $*" ;;
    *) judged FAILED "$((SECONDS - began)) s, exit code $code: $*" ;;
    esac
}
tests() {
    if "$python" -c "import pytest, xdist" 2>/dev/null; then
        step "$1" "$python" -m pytest -m gpu -q -p no:cacheprovider "${@:2}"
    else
        left_out "the tests ${*:2} (pytest and pytest-xdist are needed)"
    fi
}

wheels=${WHEELS:-wheels} python=${PYTHON:-}
for each in python3 python; do
    [ -n "$python" ] || ! "$each" -c "import cupy" 2>/dev/null || python=$each
done
python=${python:-python3}
if [ -d "$wheels" ]; then
    # One place for all calls: CuPy knows a compiled kernel by where its headers are, too.
    installed=${TMPDIR:-/tmp}/ddpgrad-wheels-$(id -u)
    rm -rf "$installed"
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$installed" "$wheels"/*.whl ||
        { judged FAILED "the wheels in $wheels cannot be installed"; exit 1; }
    export PYTHONPATH="$installed:$PYTHONPATH"
fi

echo "== part $part of $(git rev-parse --short HEAD 2>/dev/null || echo 'a tree without git') at $(date -u +%FT%TZ)"
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
else
    echo "no nvidia-smi"
fi
timeout -k 5 90 "$python" - <<'END' || { judged FAILED "$python does not load ddpgrad, or finds no GPU"; exit 1; }
import platform, sys
from importlib import metadata
print("Python", platform.python_version(), sys.executable)
for name in ("numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "torch", "pytest"):
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
compilers=$(($(nproc) < 16 ? $(nproc) : 16))
[ -n "$small" ] && workers=0 # a rehearsal has few tests

# The same job in one process and in several: losses and weights have the same bits.
same_bits() {
    local ranks=$1 procs job steps=30
    [ -z "$small" ] || steps=4
    for procs in 1 "$ranks"; do
        job=("${launch[@]}" -n "$ranks" --procs "$procs" tests/jobs/same_bits.py --device cuda --steps "$steps")
        rm -rf "$rough/bits"
        step 60 "${job[@]}" --checkpoints "$rough/bits" >"$rough/said"
        cat "$rough/said"
        grep -o '{"losses".*}' "$rough/said" >"$rough/bits-$procs.json"
    done
    if [ -s "$rough/bits-1.json" ] && cmp "$rough/bits-1.json" "$rough/bits-$ranks.json"; then
        judged ok "$ranks ranks: the same bits in 1 process and in $ranks, through host memory"
    else
        judged FAILED "$ranks ranks: other bits in $ranks processes than in 1"
    fi
}
# The last argument of pytest in a rehearsal, which has no time for all ops.
few=() several=(--models GPT --stacks eager captured)
[ -z "$small" ] || few=(-k "softmax or where or matmul")
[ -z "$small" ] || several+=(--small)
rounds=$([ -z "$small" ] && echo 10 || echo 3)

case $part in
first)
    # These compile side by side what doctor would compile one after the other.
    step 120 "$python" tests/gpu/kernels.py --processes "$compilers" --types float64 float32 float16 bfloat16
    step 100 "$python" tests/gpu/captured_steps.py $option
    step 150 "${launch[@]}" doctor --gpu
    step 120 "$python" tests/gpu/models_beside_torch.py "${several[@]}" --steps "$rounds"
    tests 90 tests/backend/test_cuda.py tests/backend/test_cuda_streams.py tests/optim/test_on_gpu.py -n "$workers"
    step 60 "$python" tests/gpu/ops_beside_torch.py $option
    same_bits 2
    tests 120 tests/ops -n "$workers" --maxfail 50 ${few[@]+"${few[@]}"}
    ;;
1)
    step 120 "$python" tests/gpu/captured_steps.py $option
    step 200 "${launch[@]}" doctor --gpu
    tests 120 tests/backend/test_cuda.py tests/backend/test_cuda_streams.py tests/optim/test_on_gpu.py -n 0
    sizes=(--layers 4 --width 256 --heads 4 --context 256 --steps 100)
    [ -n "$small" ] && sizes=(--layers 1 --width 16 --heads 2 --context 16 --batch 8 --steps 6)
    step 120 "${launch[@]}" -n 1 examples/train_gpt.py --device cuda --run "$rough/gpt" "${sizes[@]}"
    ;;
2) tests "$limit" tests/ops tests/amp tests/autograd tests/utils -n "$workers" ${few[@]+"${few[@]}"} ;;
3)
    tests 120 tests/ops/test_linalg.py -n 0
    step 100 "$python" tests/gpu/kernels.py --what linalg
    if command -v compute-sanitizer; then
        for tool in memcheck racecheck; do
            step 150 compute-sanitizer --tool "$tool" --error-exitcode 1 "$python" tests/gpu/kernels.py --types float32
        done
    else
        left_out "memcheck and racecheck (compute-sanitizer is not installed); the kernels run without"
        step 150 "$python" tests/gpu/kernels.py --types float32
    fi
    ;;
4) step "$limit" "$python" tests/gpu/ops_beside_torch.py $option ;;
5)
    step 400 "$python" tests/gpu/models_beside_torch.py $option ${small:+--steps 3}
    step 120 "$python" examples/benchmarks/gpu_counts.py
    ;;
6)
    tests 150 tests/distributed/test_contract.py tests/distributed/test_names.py -n 0
    tests 100 tests/distributed/test_fully_shard_on_gpus.py -n 0
    for ranks in 2 4; do same_bits "$ranks"; done
    ;;
esac
echo "== part $part: $([ "$failed" = 0 ] && echo 'all of it holds' || echo FAILED) ($SECONDS s)"
exit "$failed"
