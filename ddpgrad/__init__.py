"""ddpgrad: distributed data-parallel training with PyTorch's vocabulary.

`import ddpgrad as torch` is what a PyTorch program needs to change. This page is the public
face: every name that users import from the top level is listed here.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from math import e, inf, nan, pi

from . import (
    __config__,
    absent,
    accelerator,
    amp,
    autograd,
    backends,
    compiler,
    cpu,
    cuda,
    distributed,
    fft,
    func,
    hub,
    jit,
    linalg,
    mps,
    nn,
    optim,
    profiler,
    random,
    return_types,
    sparse,
    special,
    types,
    utils,
    version,
    xpu,
)
from ._tensor import Size, Tensor
from .amp import (
    GradScaler,
    autocast,
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    is_autocast_cache_enabled,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_autocast_gpu_dtype,
)
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled
from .autograd.grad_mode import is_inference_mode_enabled
from .backend.device import Device as device
from .backend.device import get_default_device, set_default_device
from .backend.dtype import (
    DType as dtype,
)
from .backend.dtype import (
    bfloat16,
    complex32,
    complex64,
    complex128,
    finfo,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
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
    uint16,
    uint32,
    uint64,
)
from .backend.dtype import (
    bool_ as bool,
)
from .checks import (
    _assert,
    _assert_async,
    _check,
    _check_index,
    _check_is_size,
    _check_not_implemented,
    _check_type,
    _check_value,
)
from .compiler import compile
from .cuda import Event, OutOfMemoryError, Stream
from .cuda import amp as _cuda_amp  # so that torch.cuda.amp is there
from .func import vmap
from .futures import Future
from .jit import ScriptModule
from .missing import missing
from .nn import parallel
from .nn.functional import (
    adaptive_avg_pool1d,
    alpha_dropout,
    avg_pool1d,
    bilinear,
    binary_cross_entropy_with_logits,
    celu,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_embedding_loss,
    cosine_similarity,
    ctc_loss,
    dropout,
    feature_alpha_dropout,
    group_norm,
    hardshrink,
    hinge_embedding_loss,
    layer_norm,
    margin_ranking_loss,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    poisson_nll_loss,
    prelu,
    rms_norm,
    rrelu,
    rrelu_,
    selu,
    selu_,
    threshold,
    triplet_margin_loss,
)  # fmt: skip  # fmt: skip
from .nn.functional import adaptive_max_pool1d_with_indices as adaptive_max_pool1d
from .nn.functional.grid import grid_sampler
from .nn.functional.padding import constant_pad_nd
from .ops.activation import relu
from .ops.arithmetic import (
    add,
    addcdiv,
    addcmul,
    clamp_max,
    clamp_min,
    div,
    float_power,
    positive,
    rsub,
    sub,
)  # fmt: skip
from .ops.binary import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    copysign,
    fmax,
    fmin,
    gcd,
    heaviside,
    hypot,
    lcm,
    ldexp,
    logaddexp2,
    nextafter,
)  # fmt: skip
from .ops.complex import (
    angle,
    complex,
    conj,
    imag,
    is_conj,
    isreal,
    polar,
    real,
    resolve_conj,
    sgn,
    view_as_complex,
    view_as_real,
)  # fmt: skip
from .ops.composed import log_softmax, softmax
from .ops.copies import (
    alias_copy,
    as_strided_copy,
    detach_copy,
    diagonal_copy,
    expand_copy,
    permute_copy,
    select_copy,
    split_copy,
    split_with_sizes_copy,
    squeeze_copy,
    t_copy,
    transpose_copy,
    unbind_copy,
    unfold_copy,
    unsqueeze_copy,
    view_copy,
)  # fmt: skip
from .ops.counting import (
    bincount,
    bucketize,
    histc,
    histogram,
    histogramdd,
    searchsorted,
    unique,
    unique_consecutive,
)  # fmt: skip
from .ops.creation import (
    Layout as layout,
)
from .ops.creation import (
    MemoryFormat as memory_format,
)
from .ops.creation import (
    arange,
    channels_last,
    channels_last_3d,
    contiguous_format,
    empty,
    empty_like,
    empty_permuted,
    empty_strided,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    preserve_format,
    scalar_tensor,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
    vander,
    zeros,
    zeros_like,
)
from .ops.data import as_tensor, asarray, from_dlpack, frombuffer, tensor
from .ops.diagonal import (
    diag,
    diag_embed,
    diagflat,
    diagonal,
    diagonal_scatter,
    trace,
    tril,
    tril_indices,
    triu,
    triu_indices,
)  # fmt: skip
from .ops.differences import cumulative_trapezoid, diff, gradient, trapezoid
from .ops.distance import cdist, pdist
from .ops.draws import (
    bernoulli,
    binomial,
    multinomial,
    normal,
    poisson,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)  # fmt: skip
from .ops.einsum import einsum
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
    deg2rad,
    exp,
    exp2,
    expm1,
    floor,
    frac,
    frexp,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    nan_to_num,
    neg,
    rad2deg,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sign,
    signbit,
    sin,
    sinc,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)  # fmt: skip
from .ops.factorizations import matrix_exp
from .ops.factors import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    geqrf,
    lu,
    lu_solve,
    lu_unpack,
    orgqr,
    ormqr,
    qr,
    svd,
)  # fmt: skip
from .ops.index import gather, index_select, select
from .ops.interop import CUDA_TYPED, TYPED, UntypedStorage, is_storage
from .ops.inverses import det
from .ops.linalg import inverse, logdet, matrix_power, slogdet, triangular_solve
from .ops.low_rank import lobpcg, pca_lowrank, svd_lowrank
from .ops.matrix import matmul
from .ops.matrix_norms import pinverse
from .ops.norms import dist, norm, renorm
from .ops.pointwise import (
    atan2,
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
)  # fmt: skip
from .ops.products import (
    addbmm,
    addmm,
    addmv,
    addr,
    baddbmm,
    bmm,
    chain_matmul,
    cross,
    dot,
    inner,
    kron,
    mm,
    mv,
    outer,
    tensordot,
    vdot,
)  # fmt: skip
from .ops.putting import (
    argwhere,
    fill,
    index_add,
    index_copy,
    index_fill,
    index_put,
    index_reduce,
    masked_scatter,
    masked_select,
    nonzero,
    nonzero_static,
    put,
    select_scatter,
    slice_scatter,
    take,
    take_along_dim,
    unravel_index,
    where,
)  # fmt: skip
from .ops.queries import (
    allclose,
    can_cast,
    detach,
    equal,
    get_device,
    is_complex,
    is_floating_point,
    is_nonzero,
    is_same_size,
    is_signed,
    isclose,
    isin,
    numel,
    result_type,
)  # fmt: skip
from .ops.rearranging import (
    adjoint,
    broadcast_to,
    fliplr,
    flipud,
    moveaxis,
    movedim,
    narrow_copy,
    ravel,
    repeat_interleave,
    rot90,
    t,
    tile,
    unflatten,
)  # fmt: skip
from .ops.reduce import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    logsumexp,
    mean,
    nansum,
    prod,
    sum,
)  # fmt: skip
from .ops.scan import cummax, cummin, cumprod, cumsum, logcumsumexp
from .ops.scattering import scatter, scatter_add, scatter_reduce
from .ops.shape import (
    expand,
    flatten,
    flip,
    narrow,
    permute,
    repeat,
    reshape,
    roll,
    squeeze,
    transpose,
    unsqueeze,
)  # fmt: skip
from .ops.sorting import (
    aminmax,
    argsort,
    kthvalue,
    max,
    median,
    min,
    mode,
    msort,
    nanmedian,
    nanquantile,
    quantile,
    sort,
    topk,
)  # fmt: skip
from .ops.special import (
    digamma,
    erf,
    erfc,
    erfinv,
    i0,
    igamma,
    igammac,
    lgamma,
    logit,
    mvlgamma,
    polygamma,
    xlogy,
)  # fmt: skip
from .ops.spectrogram import istft, stft
from .ops.splitting import (
    chunk,
    dsplit,
    hsplit,
    split,
    split_with_sizes,
    tensor_split,
    unbind,
    unsafe_chunk,
    unsafe_split,
    unsafe_split_with_sizes,
    vsplit,
)  # fmt: skip
from .ops.stacking import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    cat,
    column_stack,
    combinations,
    dstack,
    hstack,
    meshgrid,
    row_stack,
    stack,
    vstack,
)  # fmt: skip
from .ops.statistics import corrcoef, cov, nanmean, std, std_mean, var, var_mean
from .ops.strided import as_strided, as_strided_scatter
from .ops.window_functions import bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window
from .printing import get_printoptions, printoptions, set_printoptions
from .random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .serialization import load, save
from .settings import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_default_tensor_type,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    set_warn_always,
    use_deterministic_algorithms,
)
from .summary import summary
from .version import __version__

float = float32
double = float64
half = float16
ger = outer
short = int16
int = int32
long = int64
concat = concatenate = cat
trapz = trapezoid
clip = clamp
swapaxes = swapdims = transpose
grid_sampler_2d = grid_sampler_3d = grid_sampler
multiply, divide, subtract, true_divide = mul, div, sub, div
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
absolute, negative, fix, conj_physical, resolve_neg = abs, neg, trunc, conj, resolve_conj
arccos, arcsin, arctan, arccosh, arcsinh, arctanh, arctan2 = acos, asin, atan, acosh, asinh, atanh, atan2
chalf, cfloat, cdouble = complex32, complex64, complex128
SymInt, SymFloat, SymBool = absent.stand_ins("", absent.SYMBOLS).values()
PyTorchFileReader, PyTorchFileWriter = absent.stand_ins("", absent.READERS).values()
sparse_coo_tensor, spmm = sparse.sparse_coo_tensor, sparse.mm
newaxis = None


def is_inference(input: Tensor) -> builtins.bool:
    """True for a tensor made in `inference_mode`; see `Tensor.is_inference`."""
    return input.is_inference()


BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, HalfTensor = (
    TYPED[f"{name}Tensor"] for name in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half")
)
IntTensor, LongTensor, ShortTensor = (TYPED[f"{name}Tensor"] for name in ("Int", "Long", "Short"))
for _name, _kind in CUDA_TYPED.items():
    setattr(cuda, _name, _kind)


def is_tensor(obj: object) -> builtins.bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


def typename(obj: object) -> str:
    """`'torch.FloatTensor'` for a Tensor; for others the name of their type, with its module."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_ON_USE = (
    "_C",
    "_dynamo",
    "distributions",
    "functional",
    "fx",
    "library",
    "multiprocessing",
    "onnx",
    "overrides",
    "safetensors",
    "testing",
)


def __getattr__(name: str) -> object:
    """Modules that few programs use; in-place functions, as in `torch.relu_(x)`, which are Tensor methods."""
    if name in _ON_USE:
        return import_module(f"{__name__}.{name}")
    if name == "default_generator":
        return random.default_generator()  # this rank's
    if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, name):
        return getattr(Tensor, name)
    if (part := absent.find(name)) is not None:
        return part
    raise missing(globals(), name)
