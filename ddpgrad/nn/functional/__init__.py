"""Functions of `ddpgrad.nn.functional`: what layers compute, without their state."""

from __future__ import annotations

from ...ops.activation import softplus as softplus
from ...ops.composed import log_softmax as log_softmax
from ...ops.composed import softmax as softmax
from ...ops.elementwise import sigmoid as sigmoid
from ...ops.elementwise import tanh as tanh
from ...ops.matrix import linear as linear
from .activation import elu as elu
from .activation import gelu as gelu
from .activation import glu as glu
from .activation import hardtanh as hardtanh
from .activation import leaky_relu as leaky_relu
from .activation import logsigmoid as logsigmoid
from .activation import mish as mish
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import silu as silu
from .activation import softmin as softmin
from .classification import cross_entropy as cross_entropy
from .classification import nll_loss as nll_loss
from .layer import adaptive_avg_pool2d as adaptive_avg_pool2d
from .layer import avg_pool2d as avg_pool2d
from .layer import batch_norm as batch_norm
from .layer import conv2d as conv2d
from .layer import dropout as dropout
from .layer import embedding as embedding
from .layer import layer_norm as layer_norm
from .layer import max_pool2d as max_pool2d
from .layer import refuse_table_options as refuse_table_options
from .layer import scaled_dot_product_attention as scaled_dot_product_attention
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .loss import huber_loss as huber_loss
from .loss import kl_div as kl_div
from .loss import l1_loss as l1_loss
from .loss import mse_loss as mse_loss
from .loss import smooth_l1_loss as smooth_l1_loss
from .vector import cosine_similarity as cosine_similarity
from .vector import normalize as normalize
from .vector import one_hot as one_hot
from .vector import pad as pad
