"""ddpgrad: distributed data-parallel training with PyTorch's vocabulary.

`import ddpgrad as torch` is what a PyTorch program needs to change. This page is the public
face: every name that users import from the top level is listed here.
"""

from __future__ import annotations

import builtins

from . import autograd, cuda, distributed, nn, optim, random, utils
from ._tensor import Size, Tensor
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .backend.device import Device as device
from .backend.dtype import (
    DType as dtype,
)
from .backend.dtype import (
    bfloat16,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
)
from .backend.dtype import (
    bool_ as bool,
)
from .nn import parallel
from .ops.activation import log_softmax, relu, softmax
from .ops.composed import (
    add,
    addcdiv,
    addcmul,
    addmm,
    allclose,
    argsort,
    bmm,
    chunk,
    div,
    dot,
    equal,
    isclose,
    max,
    min,
    mm,
    movedim,
    mv,
    nonzero,
    norm,
    outer,
    select,
    sort,
    split,
    sub,
    t,
    topk,
    unbind,
)  # fmt: skip
from .ops.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    multinomial,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    tensor,
    zeros,
    zeros_like,
)  # fmt: skip
from .ops.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    ceil,
    clamp,
    clone,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    neg,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)  # fmt: skip
from .ops.index import gather, index_select, scatter, scatter_add
from .ops.matrix import matmul
from .ops.pointwise import (
    atan2,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    eq,
    floor_divide,
    fmod,
    ge,
    gt,
    le,
    lerp,
    logaddexp,
    logical_and,
    logical_or,
    logical_xor,
    lt,
    masked_fill,
    maximum,
    minimum,
    mul,
    ne,
    pow,
    remainder,
    where,
)  # fmt: skip
from .ops.reduce import all, amax, amin, any, argmax, argmin, cumsum, logsumexp, mean, prod, std, sum, var
from .ops.shape import (
    cat,
    expand,
    flatten,
    flip,
    narrow,
    permute,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    transpose,
    tril,
    triu,
    unsqueeze,
)  # fmt: skip
from .random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .serialization import load, save

float = float32
double = float64
half = float16
short = int16
int = int32
long = int64
concat = concatenate = cat
clip = clamp
swapaxes = transpose
multiply, divide, subtract, true_divide = mul, div, sub, div


def is_tensor(obj: object) -> builtins.bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


__version__ = "0.1.0"
