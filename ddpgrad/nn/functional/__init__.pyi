"""The functions of `ddpgrad.nn.functional`: layers without their state."""

from ...compat.absent import (
    ScalingType as ScalingType, SwizzleType as SwizzleType, scaled_grouped_mm as scaled_grouped_mm,
    scaled_mm as scaled_mm,
)
from ...ops.elementwise.activation import (
    celu as celu, elu as elu, gelu as gelu, glu as glu, hardshrink as hardshrink, hardsigmoid as hardsigmoid,
    hardswish as hardswish, leaky_relu as leaky_relu, mish as mish, selu as selu, silu as silu,
    softplus as softplus, softshrink as softshrink, threshold as threshold,
)
from ...ops.elementwise.unary import hardtanh as hardtanh, sigmoid as sigmoid, tanh as tanh
from ...ops.layers.dropout import dropout as dropout
from ...ops.layers.normalization import (
    group_norm as group_norm, layer_norm as layer_norm, rms_norm as rms_norm,
)
from ...ops.linalg.matrix import linear as linear
from ...ops.reduction.distance import pdist as pdist
from .activation import (
    celu_ as celu_, elu_ as elu_, gumbel_softmax as gumbel_softmax,
    hardtanh_ as hardtanh_, leaky_relu_ as leaky_relu_, log_softmax as log_softmax, logsigmoid as logsigmoid,
    prelu as prelu, relu as relu, relu6 as relu6, relu_ as relu_, rrelu as rrelu, rrelu_ as rrelu_, selu_ as selu_,
    softmax as softmax, softmin as softmin, softsign as softsign, tanhshrink as tanhshrink,
    threshold_ as threshold_,
)
from .adaptive_pooling import (
    adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d, adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d as adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d as adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices,
    fractional_max_pool2d as fractional_max_pool2d, fractional_max_pool3d as fractional_max_pool3d,
)
from .. import _reduction as _Reduction
from .attention import (
    _canonical_mask as _canonical_mask, _in_projection as _in_projection,
    _in_projection_packed as _in_projection_packed, _mha_shape_check as _mha_shape_check,
    _none_or_dtype as _none_or_dtype, multi_head_attention_forward as multi_head_attention_forward,
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from .bilinear import bilinear as bilinear
from .linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from .classification import cross_entropy as cross_entropy, nll_loss as nll_loss
from .convolution import (
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
)
from .ctc import ctc_loss as ctc_loss
from .distance import (
    cosine_similarity as cosine_similarity, normalize as normalize, pairwise_distance as pairwise_distance,
)
from .dropouts import (
    alpha_dropout as alpha_dropout, dropout1d as dropout1d, dropout2d as dropout2d, dropout3d as dropout3d,
    feature_alpha_dropout as feature_alpha_dropout,
)
from .embedding import embedding as embedding, embedding_bag as embedding_bag, one_hot as one_hot
from .fold import (
    channel_shuffle as channel_shuffle, fold as fold, pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle, unfold as unfold,
)
from .grid import (
    GRID_SAMPLE_INTERPOLATION_MODES as GRID_SAMPLE_INTERPOLATION_MODES,
    GRID_SAMPLE_PADDING_MODES as GRID_SAMPLE_PADDING_MODES, affine_grid as affine_grid, grid_sample as grid_sample,
)
from .grouped import grouped_mm as grouped_mm
from .interpolation import (
    interpolate as interpolate, upsample as upsample, upsample_bilinear as upsample_bilinear,
    upsample_nearest as upsample_nearest,
)
from .loss import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    gaussian_nll_loss as gaussian_nll_loss, huber_loss as huber_loss, kl_div as kl_div, l1_loss as l1_loss,
    mse_loss as mse_loss, poisson_nll_loss as poisson_nll_loss, smooth_l1_loss as smooth_l1_loss,
)
from .margin import (
    cosine_embedding_loss as cosine_embedding_loss, hinge_embedding_loss as hinge_embedding_loss,
    margin_ranking_loss as margin_ranking_loss, multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss, soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from .normalization import (
    batch_norm as batch_norm, instance_norm as instance_norm, local_response_norm as local_response_norm,
)
from .padding import pad as pad
from .pooling import (
    avg_pool1d as avg_pool1d, avg_pool2d as avg_pool2d, avg_pool3d as avg_pool3d, lp_pool1d as lp_pool1d,
    lp_pool2d as lp_pool2d, lp_pool3d as lp_pool3d, max_pool1d as max_pool1d, max_pool1d_with_indices as max_pool1d_with_indices,
    max_pool2d as max_pool2d, max_pool2d_with_indices as max_pool2d_with_indices, max_pool3d as max_pool3d,
    max_pool3d_with_indices as max_pool3d_with_indices, max_unpool1d as max_unpool1d, max_unpool2d as max_unpool2d,
    max_unpool3d as max_unpool3d,
)
from .underlying import conv_tbc as conv_tbc
