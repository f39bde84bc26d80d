"""The public face: every name of the top level. See `core/face.py`."""

from . import (
    amp as amp, autograd as autograd, cuda as cuda, distributed as distributed, fft as fft, func as func,
    library as library, linalg as linalg, multiprocessing as multiprocessing, nn as nn, optim as optim,
    profiler as profiler, random as random, special as special, testing as testing, utils as utils, version as version,
)
from .amp import (
    autocast as autocast, autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting, clear_autocast_cache as clear_autocast_cache,
    get_autocast_cpu_dtype as get_autocast_cpu_dtype, get_autocast_dtype as get_autocast_dtype,
    get_autocast_gpu_dtype as get_autocast_gpu_dtype, GradScaler as GradScaler,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled, is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype, set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_dtype as set_autocast_dtype, set_autocast_enabled as set_autocast_enabled,
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from .autograd import (
    enable_grad as enable_grad, inference_mode as inference_mode, is_grad_enabled as is_grad_enabled,
    no_grad as no_grad, set_grad_enabled as set_grad_enabled,
)
from .autograd.anomaly_mode import (
    is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled, is_anomaly_enabled as is_anomaly_enabled,
    set_anomaly_enabled as set_anomaly_enabled,
)
from .autograd.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from .backend.device import (
    Device as _Device, get_default_device as get_default_device, set_default_device as set_default_device,
)
from .backend.dtype import (
    bfloat16 as bfloat16, bool_ as _bool_, complex128 as complex128, complex32 as complex32,
    complex64 as complex64, DType as _DType, finfo as finfo, float16 as float16, float32 as float32,
    float64 as float64, float8_e4m3fn as float8_e4m3fn, float8_e4m3fnuz as float8_e4m3fnuz,
    float8_e5m2 as float8_e5m2, float8_e5m2fnuz as float8_e5m2fnuz, get_default_dtype as get_default_dtype,
    iinfo as iinfo, int16 as int16, int32 as int32, int64 as int64, int8 as int8,
    promote_types as promote_types, set_default_dtype as set_default_dtype, uint16 as uint16,
    uint32 as uint32, uint64 as uint64, uint8 as uint8, float4_e2m1fn_x2 as float4_e2m1fn_x2, float8_e8m0fnu as float8_e8m0fnu, int1 as int1, int2 as int2, int3 as int3, int4 as int4, int5 as int5, int6 as int6, int7 as int7, qint32 as qint32, qint8 as qint8, quint2x4 as quint2x4, quint4x2 as quint4x2, quint8 as quint8, uint1 as uint1, uint2 as uint2, uint3 as uint3, uint4 as uint4, uint5 as uint5, uint6 as uint6, uint7 as uint7,
)
from .compat import (
    __config__ as __config__, conversion_flags as __future__, _C as _C, _dynamo as _dynamo, accelerator as accelerator,
    backends as backends, compiler as compiler, cpu as cpu, hub as hub, jit as jit, mps as mps,
    overrides as overrides, types as types, xpu as xpu,
)
from .compat._C import DeviceObjType as DeviceObjType, TensorType as TensorType
from .compat.absent import (
    PyTorchFileReader as PyTorchFileReader, PyTorchFileWriter as PyTorchFileWriter, SymBool as SymBool,
    SymFloat as SymFloat, SymInt as SymInt,
)
from .compat.checks import (
    _assert as _assert, _assert_async as _assert_async, _check as _check, _check_index as _check_index,
    _check_is_size as _check_is_size, _check_not_implemented as _check_not_implemented,
    _check_tensor_all as _check_tensor_all, _check_tensor_all_with as _check_tensor_all_with,
    _check_type as _check_type, _check_value as _check_value, _check_with as _check_with,
    _shape_as_tensor as _shape_as_tensor, sym_float as sym_float, sym_int as sym_int,
    sym_ite as sym_ite, sym_max as sym_max, sym_min as sym_min, sym_not as sym_not, sym_sum as sym_sum,
)
from .compat.compiler import compile as compile, cond as cond
from .compat.accelerator import get_device_module as get_device_module
from .compat.jit import ScriptModule as ScriptModule
from .compat.settings import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode as get_deterministic_debug_mode,
    get_float32_matmul_precision as get_float32_matmul_precision,
    get_num_interop_threads as get_num_interop_threads, get_num_threads as get_num_threads,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled as is_warn_always_enabled, set_default_tensor_type as set_default_tensor_type,
    set_deterministic_debug_mode as set_deterministic_debug_mode,
    set_float32_matmul_precision as set_float32_matmul_precision, set_flush_denormal as set_flush_denormal,
    set_num_interop_threads as set_num_interop_threads, set_num_threads as set_num_threads,
    set_warn_always as set_warn_always, use_deterministic_algorithms as use_deterministic_algorithms,
)
from .sparse.compressed import (
    sparse_bsc_tensor as sparse_bsc_tensor, sparse_bsr_tensor as sparse_bsr_tensor,
    sparse_compressed_tensor as sparse_compressed_tensor, sparse_csc_tensor as sparse_csc_tensor,
    sparse_csr_tensor as sparse_csr_tensor,
)
from .sparse.construct import sparse_coo_tensor as sparse_coo_tensor
from .sparse.functions import mm as _sparse_mm
from .core import environment as environment, errors as errors, return_types as return_types
from .core.printing import (
    get_printoptions as get_printoptions, printoptions as printoptions,
    set_printoptions as set_printoptions,
)
from .core.size import (
    channels_last as channels_last, channels_last_3d as channels_last_3d, contiguous_format as contiguous_format,
    Layout as _Layout, MemoryFormat as _MemoryFormat, preserve_format as preserve_format,
    jagged as jagged, sparse_bsc as sparse_bsc, sparse_bsr as sparse_bsr, sparse_coo as sparse_coo, sparse_csc as sparse_csc,
    sparse_csr as sparse_csr, strided as strided,
)
from .core.storage import (
    BFloat16Storage as BFloat16Storage, BoolStorage as BoolStorage, ByteStorage as ByteStorage,
    CharStorage as CharStorage, ComplexDoubleStorage as ComplexDoubleStorage,
    ComplexFloatStorage as ComplexFloatStorage, DoubleStorage as DoubleStorage, FloatStorage as FloatStorage,
    HalfStorage as HalfStorage, IntStorage as IntStorage, LongStorage as LongStorage, ShortStorage as ShortStorage,
    StorageBase as StorageBase, TypedStorage as TypedStorage, UntypedStorage as UntypedStorage,
)
from .core.tensor import Size as Size, Tensor as Tensor
from .cuda import Event as Event, OutOfMemoryError as OutOfMemoryError, Stream as Stream
from .extras import (
    datasets as datasets, distributions as distributions, fx as fx, onnx as onnx, transforms as transforms,
)
from .extras.distributions.dirichlet import _dirichlet_grad as _dirichlet_grad, _sample_dirichlet as _sample_dirichlet
from .extras.distributions.gamma import _standard_gamma as _standard_gamma
from .extras.summary import summary as summary
from .files import safetensors as safetensors, serialization as serialization
from .files.serialization import load as load, save as save
from .func import vmap as vmap
from .futures import Future as Future
from .nn import parallel as parallel
from .nn.functional import (
    adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_max_pool1d_with_indices as _adaptive_max_pool1d_with_indices,
    avg_pool1d as avg_pool1d, bilinear as bilinear, celu as celu, channel_shuffle as channel_shuffle,
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
    cosine_similarity as cosine_similarity, hardshrink as hardshrink, max_pool1d as max_pool1d,
    max_pool2d as max_pool2d, max_pool3d as max_pool3d, pairwise_distance as pairwise_distance,
    pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, prelu as prelu, rms_norm as rms_norm,
    rrelu as rrelu, rrelu_ as rrelu_, selu as selu, selu_ as selu_, threshold as threshold,
)
from .ops.layers.grid import grid_sampler as grid_sampler
from .nn.functional.padding import constant_pad_nd as constant_pad_nd
from .nn.functional.grouped import grouped_mm as _grouped_mm
from .nn.functional.recurrent import (
    gru as gru, gru_cell as gru_cell, lstm as lstm, lstm_cell as lstm_cell, rnn_relu as rnn_relu,
    rnn_relu_cell as rnn_relu_cell, rnn_tanh as rnn_tanh, rnn_tanh_cell as rnn_tanh_cell,
)
from .nn.functional.underlying import (
    alpha_dropout as alpha_dropout, batch_norm as batch_norm,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cosine_embedding_loss as cosine_embedding_loss, ctc_loss as ctc_loss, dropout as dropout, embedding as embedding,
    conv_tbc as conv_tbc, embedding_bag as embedding_bag, norm_except_dim as norm_except_dim, _weight_norm as _weight_norm,
    feature_alpha_dropout as feature_alpha_dropout, feature_dropout as feature_dropout, group_norm as group_norm,
    hinge_embedding_loss as hinge_embedding_loss, instance_norm as instance_norm, _int_mm as _int_mm,
    kl_div as kl_div, layer_norm as layer_norm, margin_ranking_loss as margin_ranking_loss,
    poisson_nll_loss as poisson_nll_loss, _softmax_backward_data as _softmax_backward_data,
    triplet_margin_loss as triplet_margin_loss,
)
from .library.tags import Tag as Tag
from .ops.creation.data import (
    as_tensor as as_tensor, asarray as asarray, from_file as from_file, frombuffer as frombuffer,
    tensor as tensor, vander as vander,
)
from .ops.creation.dlpack import from_dlpack as from_dlpack, to_dlpack as to_dlpack
from .ops.creation.draws import (
    bernoulli as bernoulli, binomial as binomial, multinomial as multinomial, normal as normal,
    poisson as poisson, rand as rand, rand_like as rand_like, randint as randint,
    randint_like as randint_like, randn as randn, randn_like as randn_like, randperm as randperm,
)
from .ops.creation.factories import (
    arange as arange, empty as empty, empty_like as empty_like, empty_permuted as empty_permuted,
    empty_strided as empty_strided, eye as eye, from_numpy as from_numpy, full as full, full_like as full_like,
    ones as ones, ones_like as ones_like,
    scalar_tensor as scalar_tensor, zeros as zeros, zeros_like as zeros_like,
)
from .ops.creation.interop import (
    BFloat16Tensor as BFloat16Tensor, BoolTensor as BoolTensor, ByteTensor as ByteTensor,
    CharTensor as CharTensor, DoubleTensor as DoubleTensor, FloatTensor as FloatTensor,
    HalfTensor as HalfTensor, IntTensor as IntTensor, is_storage as is_storage, LongTensor as LongTensor,
    ShortTensor as ShortTensor,
)
from .ops.creation.spaced import _range as _range, linspace as linspace, logspace as logspace
from .ops.elementwise.activation import log_softmax as log_softmax, relu as relu, softmax as softmax
from .ops.elementwise.arithmetic import (
    add as add, clamp_max as clamp_max, clamp_min as clamp_min,
    div as div, float_power as float_power, floor_divide as floor_divide, positive as positive,
    rsub as rsub, sub as sub,
)
from .ops.elementwise.fused_sums import addcdiv as addcdiv, addcmul as addcmul
from .ops.elementwise.binary import (
    atan2 as atan2, eq as eq, fmod as fmod, ge as ge, gt as gt, le as le,
    lerp as lerp, logaddexp as logaddexp, logical_and as logical_and, logical_or as logical_or,
    logical_xor as logical_xor, lt as lt, masked_fill as masked_fill, maximum as maximum,
    minimum as minimum, mul as mul, ne as ne, pow as pow, remainder as remainder, where as where,
)
from .ops.elementwise.bitwise import (
    bitwise_and as bitwise_and, bitwise_left_shift as bitwise_left_shift, bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor, copysign as copysign,
    fmax as fmax, fmin as fmin, gcd as gcd, heaviside as heaviside, hypot as hypot, lcm as lcm,
    ldexp as ldexp, logaddexp2 as logaddexp2, nextafter as nextafter,
)
from .ops.elementwise.complex import (
    angle as angle, complex as complex, conj as conj, imag as imag, is_conj as is_conj, is_neg as is_neg, isreal as isreal,
    polar as polar, real as real, resolve_conj as resolve_conj, sgn as sgn,
    view_as_complex as view_as_complex, view_as_real as view_as_real,
)
from .ops.elementwise.special import (
    digamma as digamma, erf as erf, erfc as erfc, erfinv as erfinv, i0 as i0, igamma as igamma,
    igammac as igammac, lgamma as lgamma, logit as logit, mvlgamma as mvlgamma, polygamma as polygamma,
    xlogy as xlogy,
)
from .ops.elementwise.unary import (
    abs as abs, acos as acos, acosh as acosh, asin as asin, asinh as asinh, atan as atan, atanh as atanh,
    bitwise_not as bitwise_not, ceil as ceil, clamp as clamp, clone as clone, cos as cos, cosh as cosh,
    deg2rad as deg2rad, exp as exp, exp2 as exp2, expm1 as expm1, floor as floor, frac as frac,
    frexp as frexp, isfinite as isfinite, isinf as isinf, isnan as isnan, isneginf as isneginf,
    isposinf as isposinf, log as log, log10 as log10, log1p as log1p, log2 as log2,
    logical_not as logical_not, nan_to_num as nan_to_num, neg as neg, rad2deg as rad2deg,
    reciprocal as reciprocal, round as round, rsqrt as rsqrt, sigmoid as sigmoid, sign as sign,
    signbit as signbit, sin as sin, sinc as sinc, sinh as sinh, sqrt as sqrt, square as square, tan as tan,
    tanh as tanh, trunc as trunc,
)
from .ops.indexing.compressed import (
    _convert_indices_from_coo_to_csr as _convert_indices_from_coo_to_csr,
    _convert_indices_from_csr_to_coo as _convert_indices_from_csr_to_coo,
)
from .ops.indexing.gather import gather as gather, index_select as index_select
from .ops.indexing.index import index_put as index_put, nonzero as nonzero, select as select
from .ops.indexing.put import (
    argwhere as argwhere, fill as fill, index_add as index_add, index_copy as index_copy,
    index_fill as index_fill, index_reduce as index_reduce, masked_scatter as masked_scatter,
    masked_select as masked_select,
    nonzero_static as nonzero_static, put as put, select_scatter as select_scatter,
    slice_scatter as slice_scatter, take as take, take_along_dim as take_along_dim,
    unravel_index as unravel_index,
)
from .ops.indexing.scatter import (
    scatter as scatter, scatter_add as scatter_add, scatter_reduce as scatter_reduce,
)
from .ops.indexing.segments import segment_reduce as _segment_reduce, segment_reduce as segment_reduce
from .ops.linalg.matrix_exp import matrix_exp as matrix_exp
from .ops.linalg.decompositions import (
    cholesky as cholesky, cholesky_inverse as cholesky_inverse, cholesky_solve as cholesky_solve,
    lu as lu, lu_solve as lu_solve, lu_unpack as lu_unpack, qr as qr, svd as svd,
)
from .ops.linalg.einsum import einsum as einsum
from .ops.linalg.householder import geqrf as geqrf, orgqr as orgqr, ormqr as ormqr
from .ops.linalg.inverse_ops import det as det
from .ops.linalg.low_rank import lobpcg as lobpcg, pca_lowrank as pca_lowrank, svd_lowrank as svd_lowrank
from .ops.linalg.matrix import matmul as matmul
from .ops.linalg.norms import pinverse as pinverse
from .ops.linalg.products import (
    addbmm as addbmm, addmm as addmm, addmv as addmv, addr as addr, baddbmm as baddbmm, bmm as bmm,
    chain_matmul as chain_matmul, cross as cross, dot as dot, inner as inner, kron as kron, mm as mm,
    mv as mv, outer as outer, tensordot as tensordot, vdot as vdot,
)
from .ops.linalg.systems import (
    inverse as inverse, logdet as logdet, matrix_power as matrix_power, slogdet as slogdet,
    triangular_solve as triangular_solve,
)
from .ops.reduction.counting import (
    bucketize as bucketize, searchsorted as searchsorted, unique as unique, unique_consecutive as unique_consecutive,
)
from .ops.reduction.differences import (
    cumulative_trapezoid as cumulative_trapezoid, diff as diff, gradient as gradient,
    trapezoid as trapezoid,
)
from .ops.reduction.distance import cdist as cdist, pdist as pdist
from .ops.reduction.histograms import (
    bincount as bincount, histc as histc, histogram as histogram, histogramdd as histogramdd,
)
from .ops.reduction.norm import dist as dist, norm as norm, renorm as renorm
from .ops.reduction.order import argsort as argsort
from .ops.reduction.queries import (
    _has_compatible_shallow_copy_type as _has_compatible_shallow_copy_type,
    allclose as allclose, can_cast as can_cast, detach as detach, equal as equal, get_device as get_device,
    is_complex as is_complex, is_floating_point as is_floating_point, is_inference as is_inference,
    is_nonzero as is_nonzero, is_same_size as is_same_size, is_signed as is_signed, is_tensor as is_tensor,
    isclose as isclose, isin as isin, numel as numel, result_type as result_type, typename as typename,
)
from .ops.reduction.reduce import (
    all as all, amax as amax, amin as amin, any as any, argmax as argmax, argmin as argmin,
    count_nonzero as count_nonzero, logsumexp as logsumexp, mean as mean, nansum as nansum, prod as prod,
    sum as sum,
)
from .ops.reduction.scan import (
    cummax as cummax, cummin as cummin, cumprod as cumprod, cumsum as cumsum, logcumsumexp as logcumsumexp,
)
from .ops.reduction.sorting import (
    aminmax as aminmax, kthvalue as kthvalue, max as max, median as median, min as min,
    mode as mode, msort as msort, nanmedian as nanmedian, nanquantile as nanquantile, quantile as quantile,
    sort as sort, topk as topk,
)
from .ops.reduction.statistics import (
    corrcoef as corrcoef, cov as cov, nanmean as nanmean, std as std, std_mean as std_mean, var as var,
    var_mean as var_mean,
)
from .ops.shape.copies import (
    alias_copy as alias_copy, as_strided_copy as as_strided_copy, detach_copy as detach_copy,
    diagonal_copy as diagonal_copy, expand_copy as expand_copy, permute_copy as permute_copy,
    select_copy as select_copy, split_copy as split_copy, split_with_sizes_copy as split_with_sizes_copy,
    squeeze_copy as squeeze_copy, t_copy as t_copy, transpose_copy as transpose_copy,
    unbind_copy as unbind_copy, unfold_copy as unfold_copy, unsqueeze_copy as unsqueeze_copy,
    view_copy as view_copy,
)
from .ops.shape.diagonal import (
    diag as diag, diag_embed as diag_embed, diagflat as diagflat, diagonal as diagonal,
    diagonal_scatter as diagonal_scatter, trace as trace, tril as tril, tril_indices as tril_indices,
    triu as triu, triu_indices as triu_indices,
)
from .ops.shape.rearranging import (
    adjoint as adjoint, broadcast_to as broadcast_to, fliplr as fliplr, flipud as flipud,
    moveaxis as moveaxis, movedim as movedim, narrow_copy as narrow_copy, ravel as ravel,
    repeat_interleave as repeat_interleave, rot90 as rot90, swapaxes as swapaxes, t as t, tile as tile, unflatten as unflatten,
)
from .ops.shape.shape import (
    expand as expand, flatten as flatten, flip as flip, narrow as narrow, permute as permute,
    repeat as repeat, reshape as reshape, roll as roll, squeeze as squeeze, transpose as transpose,
    unsqueeze as unsqueeze,
)
from .ops.shape.splitting import (
    chunk as chunk, dsplit as dsplit, hsplit as hsplit, split as split,
    split_with_sizes as split_with_sizes, tensor_split as tensor_split, unbind as unbind,
    unsafe_chunk as unsafe_chunk, unsafe_split as unsafe_split,
    unsafe_split_with_sizes as unsafe_split_with_sizes, vsplit as vsplit,
)
from .ops.shape.stacking import (
    atleast_1d as atleast_1d, atleast_2d as atleast_2d, atleast_3d as atleast_3d, block_diag as block_diag,
    broadcast_shapes as broadcast_shapes, broadcast_tensors as broadcast_tensors,
    cartesian_prod as cartesian_prod, cat as cat, column_stack as column_stack,
    combinations as combinations, dstack as dstack, hstack as hstack, meshgrid as meshgrid,
    row_stack as row_stack, stack as stack, vstack as vstack,
)
from .ops.shape.strided import as_strided as as_strided, as_strided_scatter as as_strided_scatter
from .ops.signal.spectrogram import istft as istft, stft as stft
from .ops.signal.window_functions import (
    bartlett_window as bartlett_window, blackman_window as blackman_window,
    hamming_window as hamming_window, hann_window as hann_window, kaiser_window as kaiser_window,
)
from .random import (
    Generator as Generator, get_rng_state as get_rng_state, initial_seed as initial_seed,
    manual_seed as manual_seed, seed as seed, set_rng_state as set_rng_state,
)
from .utils.captured_step import captured_step as captured_step
from .version import __version__ as __version__
from math import e as e, inf as inf, nan as nan, pi as pi

default_generator: Generator
newaxis: None

# Other names of what is above.
absolute = abs
adaptive_max_pool1d = _adaptive_max_pool1d_with_indices
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
bool = _bool_
cdouble = complex128
cfloat = complex64
chalf = complex32
clip = clamp
concat = cat
concatenate = cat
conj_physical = conj
device = _Device
divide = div
double = float64
dtype = _DType
fix = trunc
float = float32
ger = outer
greater = gt
greater_equal = ge
grid_sampler_2d = grid_sampler
grid_sampler_3d = grid_sampler
half = float16
int = int32
layout = _Layout
legacy_contiguous_format = contiguous_format
less = lt
less_equal = le
long = int64
memory_format = _MemoryFormat
multiply = mul
native_channel_shuffle = channel_shuffle
negative = neg
not_equal = ne
range = _range
resolve_neg = resolve_conj
short = int16
spmm = _sparse_mm
subtract = sub
swapdims = transpose
trapz = trapezoid
true_divide = div

# In-place functions: methods of Tensor.
abs_ = Tensor.abs_
acos_ = Tensor.acos_
acosh_ = Tensor.acosh_
addmv_ = Tensor.addmv_
arccos_ = Tensor.arccos_
arccosh_ = Tensor.arccosh_
arcsin_ = Tensor.arcsin_
arcsinh_ = Tensor.arcsinh_
arctan_ = Tensor.arctan_
arctanh_ = Tensor.arctanh_
as_strided_ = Tensor.as_strided_
asin_ = Tensor.asin_
asinh_ = Tensor.asinh_
atan_ = Tensor.atan_
atanh_ = Tensor.atanh_
ceil_ = Tensor.ceil_
celu_ = Tensor.celu_
clamp_ = Tensor.clamp_
clamp_max_ = Tensor.clamp_max_
clamp_min_ = Tensor.clamp_min_
clip_ = Tensor.clip_
conj_physical_ = Tensor.conj_physical_
cos_ = Tensor.cos_
cosh_ = Tensor.cosh_
deg2rad_ = Tensor.deg2rad_
detach_ = Tensor.detach_
dsmm = _sparse_mm
erf_ = Tensor.erf_
erfc_ = Tensor.erfc_
exp2_ = Tensor.exp2_
exp_ = Tensor.exp_
expm1_ = Tensor.expm1_
fill_ = Tensor.fill_
fix_ = Tensor.fix_
floor_ = Tensor.floor_
frac_ = Tensor.frac_
gcd_ = Tensor.gcd_
i0_ = Tensor.i0_
index_put_ = Tensor.index_put_
lcm_ = Tensor.lcm_
ldexp_ = Tensor.ldexp_
log10_ = Tensor.log10_
log1p_ = Tensor.log1p_
log2_ = Tensor.log2_
log_ = Tensor.log_
logit_ = Tensor.logit_
nan_to_num_ = Tensor.nan_to_num_
neg_ = Tensor.neg_
negative_ = Tensor.negative_
rad2deg_ = Tensor.rad2deg_
reciprocal_ = Tensor.reciprocal_
relu_ = Tensor.relu_
resize_as_ = Tensor.resize_as_
round_ = Tensor.round_
rsqrt_ = Tensor.rsqrt_
sigmoid_ = Tensor.sigmoid_
sin_ = Tensor.sin_
sinc_ = Tensor.sinc_
sinh_ = Tensor.sinh_
sqrt_ = Tensor.sqrt_
square_ = Tensor.square_
tan_ = Tensor.tan_
tanh_ = Tensor.tanh_
threshold_ = Tensor.threshold_
trunc_ = Tensor.trunc_
xlogy_ = Tensor.xlogy_
zero_ = Tensor.zero_
