"""Every layer of `nn` as ONNX: onnxruntime computes what the layer computes; none may be forgotten."""

import sys
from pathlib import Path
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.utils import parametrizations, rnn

sys.path.append(str(Path(__file__).parent))

from exported import Call, check

SIGNAL, IMAGE, VOLUME = (2, 4, 9), (2, 4, 6, 6), (1, 2, 5, 5, 5)

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(6, 3), IMAGE), (nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 9)),
    (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), IMAGE), (nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 5, 5, 5)),
    (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), IMAGE), (nn.ConvTranspose1d(4, 6, 3), (2, 4, 7)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), IMAGE),
    (nn.ConvTranspose3d(2, 3, 2), (1, 2, 3, 3, 3)), (nn.BatchNorm1d(4), (3, 4)), (nn.BatchNorm2d(4), IMAGE),
    (nn.InstanceNorm2d(4, affine=True), IMAGE), (nn.LayerNorm([6, 6]), IMAGE), (nn.LayerNorm(6, bias=False), IMAGE),
    (nn.GroupNorm(2, 4), IMAGE), (nn.RMSNorm(6), IMAGE), (nn.LocalResponseNorm(2), IMAGE),
    (nn.MaxPool1d(2), (2, 4, 9)), (nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), IMAGE), (nn.MaxPool3d(2), (1, 2, 4, 4, 4)),
    (nn.AvgPool2d(2, padding=1), IMAGE), (nn.AdaptiveAvgPool2d(1), IMAGE), (nn.AdaptiveAvgPool2d(4), IMAGE),
    (nn.AdaptiveMaxPool2d(3), IMAGE), (nn.LPPool2d(2, 2), IMAGE), (nn.Upsample(scale_factor=2), IMAGE),
    (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE), (nn.Upsample(size=9, mode="bicubic", align_corners=True), IMAGE),
    (nn.ReflectionPad2d(1), IMAGE), (nn.ReplicationPad1d(2), (2, 4, 5)), (nn.CircularPad2d(1), IMAGE),
    (nn.ConstantPad2d((1, 0, 2, -1), 2.0), IMAGE), (nn.PixelShuffle(2), IMAGE), (nn.Flatten(), IMAGE),
    (nn.Unflatten(1, (2, 2)), IMAGE), (nn.ChannelShuffle(2), IMAGE), (nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), (2, 5, 4)),
    (nn.GRU(4, 3, bidirectional=True), (5, 2, 4)), (nn.RNN(4, 3, nonlinearity="relu", bias=False), (5, 2, 4)), (nn.LSTMCell(4, 3), (2, 4)),
    (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False), (2, 5, 8)),
    (nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True), (5, 2, 8)), (nn.Dropout(0.5), IMAGE),
    *[(nn.ReLU(inplace=True), IMAGE)],
    *[(getattr(nn, name)(), IMAGE) for name in (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish",
        "PReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax2d", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink")],
    (nn.GELU("tanh"), IMAGE), (nn.Softmax(-1), IMAGE), (nn.LogSoftmax(1), IMAGE), (nn.Threshold(0.1, 20.0), IMAGE),
    (nn.Identity(), IMAGE), (nn.Unfold(3, padding=1, stride=2), IMAGE), (nn.Unfold((2, 3), dilation=2), (2, 3, 7, 8)),
    (nn.Fold((6, 6), 3, padding=1, stride=2), (2, 36, 9)), (nn.Conv3d(2, 3, 3, padding="same"), VOLUME),
    (nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"), SIGNAL), (nn.Conv3d(2, 2, 3, padding=1, padding_mode="replicate"), VOLUME),
    (nn.AvgPool1d(3, 2, 1), SIGNAL), (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    (nn.AvgPool3d(2), VOLUME), (nn.AdaptiveAvgPool1d(4), SIGNAL), (nn.AdaptiveAvgPool3d(2), VOLUME),
    (nn.AdaptiveMaxPool1d(4), SIGNAL), (nn.AdaptiveMaxPool2d((4, 6), return_indices=True), IMAGE), (nn.AdaptiveMaxPool3d(2), VOLUME),
    (nn.LPPool1d(2, 2), SIGNAL), (nn.LPPool3d(2, 2), VOLUME), (nn.MaxPool2d(2, return_indices=True), IMAGE),
    (Call(lambda x: nn.MaxUnpool1d(2)(*F.max_pool1d(x, 2, return_indices=True), [9])), SIGNAL),
    (Call(lambda x: nn.MaxUnpool2d(2)(*F.max_pool2d(x, 2, return_indices=True))), IMAGE),
    (Call(lambda x: nn.MaxUnpool3d(2)(*F.max_pool3d(x, 2, return_indices=True), [5, 5, 5])), VOLUME),
    (nn.ReflectionPad1d(2), SIGNAL), (nn.ReflectionPad3d(1), VOLUME), (nn.ReplicationPad2d(1), IMAGE), (nn.ReplicationPad3d(1), VOLUME),
    (nn.CircularPad1d(1), SIGNAL), (nn.CircularPad3d(1), VOLUME), (nn.ZeroPad1d(1), SIGNAL), (nn.ZeroPad2d(1), IMAGE),
    (nn.ZeroPad3d(1), VOLUME), (nn.ConstantPad1d(1, 2.0), SIGNAL), (nn.ConstantPad3d(1, 2.0), VOLUME), (nn.BatchNorm3d(2), VOLUME),
    (nn.BatchNorm2d(4, track_running_stats=False), IMAGE), (nn.SyncBatchNorm(4), IMAGE), (nn.InstanceNorm3d(2), VOLUME),
    (nn.InstanceNorm1d(4, affine=True, track_running_stats=True), SIGNAL), (nn.LocalResponseNorm(3), SIGNAL), (nn.LocalResponseNorm(5), VOLUME),
    *[(getattr(nn, name)(), IMAGE) for name in ("Dropout2d", "AlphaDropout", "FeatureAlphaDropout", "RReLU")],
    (nn.Dropout1d(), SIGNAL), (nn.Dropout3d(), VOLUME), (nn.Softmin(1), IMAGE), (nn.PReLU(4), IMAGE), (nn.GLU(1), IMAGE),
    (nn.RNNCell(4, 3, nonlinearity="relu"), (2, 4)), (nn.GRUCell(4, 3), (2, 4)), (nn.LSTM(4, 3, 2, proj_size=2, dropout=0.5), (5, 2, 4)),
    (nn.LSTM(4, 3), (5, 4)), (nn.Upsample(scale_factor=2, mode="linear"), SIGNAL), (nn.Upsample(scale_factor=2, mode="trilinear"), VOLUME),
    (nn.Upsample(size=(9, 4)), IMAGE), (nn.UpsamplingBilinear2d(scale_factor=2), IMAGE), (nn.UpsamplingNearest2d(scale_factor=2), IMAGE),
    (nn.PixelUnshuffle(2), IMAGE), (parametrizations.weight_norm(nn.Linear(6, 4)), IMAGE), (parametrizations.spectral_norm(nn.Linear(6, 4)), IMAGE),
    *[(Call(lambda x, mode=mode: F.interpolate(x, size=4, mode=mode)), IMAGE) for mode in ("area", "nearest-exact")],
    (Call(lambda x: F.interpolate(x, size=4, mode="bilinear", antialias=True)), IMAGE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "shape"), LAYERS, ids=[f"{i}-{type(layer).__name__}" for i, (layer, _) in enumerate(LAYERS)]
)
def test_layers(layer, shape):
    x = torch.randn(shape)
    for buffer in layer.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    check(layer, (x,))


ROWS, OTHER, ALIKE = torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 3)
CLASSES, SIGNS = torch.tensor([0, 2, 1, 2]), torch.tensor([1.0, -1.0, 1.0, -1.0])
IDS = torch.tensor([[1, 2, 4], [4, 3, 2]])
SOURCE, TARGET = torch.randn(4, 2, 8), torch.randn(3, 2, 8)
MASK = nn.Transformer.generate_square_subsequent_mask(3)

OF_SEVERAL: list[tuple[nn.Module, tuple[torch.Tensor, ...]]] = [
    (nn.Bilinear(3, 3, 5), (ROWS, OTHER)), (nn.CosineSimilarity(), (ROWS, OTHER)), (nn.PairwiseDistance(), (ROWS, OTHER)),
    (nn.Embedding(5, 3, padding_idx=1), (IDS,)), (nn.Embedding(5, 3, max_norm=1.0), (IDS,)),
    *[(nn.EmbeddingBag(5, 3, mode=mode, padding_idx=padding), (IDS,)) for mode in ("sum", "mean", "max") for padding in (None, 4)],
    (nn.EmbeddingBag(5, 3, max_norm=0.5), (IDS,)),
    (Call(lambda i, w: F.embedding_bag(i, ROWS.repeat(2, 1), per_sample_weights=w, mode="sum")), (IDS, torch.rand(2, 3))),
    (Call(lambda i: F.embedding_bag(i.flatten(), ROWS.repeat(2, 1), torch.tensor([0, 4]))), (IDS,)),
    (nn.LSTMCell(3, 3), (ROWS,)), (nn.GRU(3, 3, 2), (torch.randn(5, 2, 3), torch.randn(2, 2, 3))),
    (nn.MultiheadAttention(8, 2), (SOURCE, SOURCE, SOURCE)),
    (nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=4, vdim=6), (SOURCE, torch.randn(5, 2, 4), torch.randn(5, 2, 6))),
    (nn.TransformerDecoderLayer(8, 2, 16), (TARGET, SOURCE)), (nn.Transformer(8, 2, 1, 1, 16), (SOURCE, TARGET)),
    (nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2, nn.LayerNorm(8)), (TARGET, SOURCE)),
    *[
        (Call(lambda x, at, options=options: F.grid_sample(x, at, align_corners=False, **options)), (torch.randn(IMAGE), torch.randn(2, 5, 5, 2)))
        for options in ({}, {"mode": "nearest", "padding_mode": "border"}, {"mode": "bicubic", "padding_mode": "reflection"})
    ],
    (Call(lambda theta: F.affine_grid(theta, [2, 3, 4, 5], align_corners=False)), (torch.randn(2, 2, 3),)),
    # losses
    *[
        (nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=ignored, label_smoothing=smoothing, reduction=how), (ROWS, CLASSES))
        for ignored in (-100, 1) for smoothing in (0.0, 0.1) for how in ("none", "sum", "mean")
    ],
    (nn.CrossEntropyLoss(), (ROWS, ALIKE)), (nn.CrossEntropyLoss(), (torch.randn(2, 3, 4), torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]]))),
    *[(nn.NLLLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=1, reduction=how), (ROWS, CLASSES)) for how in ("none", "sum", "mean")],
    *[(getattr(nn, f"{name}Loss")(), (ROWS, OTHER)) for name in ("L1", "MSE", "Huber", "SmoothL1", "SoftMargin")],
    (nn.HuberLoss(delta=0.3), (ROWS, OTHER)), (nn.BCELoss(), (ALIKE, ALIKE.flip(0))), (nn.BCELoss(), (ALIKE.round(), ALIKE)),
    (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])), (ROWS, ALIKE)), (nn.MultiLabelSoftMarginLoss(), (ROWS, ALIKE)),
    (nn.PoissonNLLLoss(), (ROWS, ALIKE)), (nn.GaussianNLLLoss(), (ROWS, OTHER, ALIKE)), (nn.KLDivLoss(reduction="batchmean"), (ROWS, ALIKE)),
    (nn.MultiMarginLoss(), (ROWS, CLASSES)), (nn.MultiLabelMarginLoss(), (ROWS[:2], torch.tensor([[1, -1, 0], [0, 2, -1]]))),
    (nn.TripletMarginLoss(), (ROWS, OTHER, ALIKE)), (nn.TripletMarginWithDistanceLoss(), (ROWS, OTHER, ALIKE)),
    (nn.CosineEmbeddingLoss(), (ROWS, OTHER, SIGNS)), (nn.MarginRankingLoss(0.1), (ROWS[:, 0], OTHER[:, 0], SIGNS)),
    (nn.HingeEmbeddingLoss(), (ROWS[:, 0], SIGNS)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "inputs"),
    OF_SEVERAL,
    ids=[f"{i}-{type(layer).__name__}" for i, (layer, _) in enumerate(OF_SEVERAL)],
)
def test_layers_of_several_inputs(layer, inputs):
    check(layer, inputs)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(layer, bidirectional):
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(4, 3, 2, batch_first=True, bidirectional=bidirectional)

        def forward(self, x: torch.Tensor) -> Any:
            packed = rnn.pack_padded_sequence(x, [2, 5, 3], batch_first=True, enforce_sorted=False)
            out, last = self.layer(packed)
            return rnn.pad_packed_sequence(out, batch_first=True)[0], last

    check(Packed(), (torch.randn(3, 5, 4),))


def test_bags_and_patches_of_a_dynamic_batch():
    check(nn.EmbeddingBag(5, 3), (IDS,), (IDS.repeat(3, 1),), dynamic_axes={"input": [0]})
    sizes = (torch.randn(2, 3, 7, 8),), (torch.randn(4, 3, 9, 10),)
    check(nn.Unfold(3, stride=2), *sizes, dynamic_axes={"input": [0, 2, 3]})
    check(nn.MaxPool2d(2, return_indices=True), *sizes, dynamic_axes={"input": [0, 2, 3]})


def test_attention_with_masks():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2)
            self.model = nn.Transformer(8, 2, 1, 1, 16)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> Any:
            padding = torch.tensor([[False, False, True], [False, False, False]])
            own = self.attention(target, target, target, key_padding_mask=padding, attn_mask=MASK.bool())
            return own, self.model(source, target, tgt_mask=MASK)

    check(Attention(), (SOURCE, TARGET))


# What has no test above, and why.
OTHERS = {
    "CTCLoss": "which paths there are depends on the lengths, which are inputs",
    "AdaptiveLogSoftmaxWithLoss": "which rows go to which cluster depends on the targets",
    "FractionalMaxPool2d": "draws its windows", "FractionalMaxPool3d": "draws its windows",
    "LinearCrossEntropyLoss": "its chunks are checkpoints; Linear and CrossEntropyLoss have tests above",
    "DataParallel": "the module that it holds is exported",
    "Sequential": "in most models of test_export.py",
}  # fmt: skip
BASES = {
    "Container", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase",
}  # fmt: skip


def test_no_layer_is_forgotten():
    tested = {type(part).__name__ for layer, _ in [*LAYERS, *OF_SEVERAL] for part in layer.modules()}
    tested |= {"MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"}  # called by functions above
    known = {n for n, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    lazy = {n for n in known if n.startswith("Lazy")}  # ordinary layers after their first input
    assert known - lazy - BASES - set(OTHERS) - tested == set()
    assert set(OTHERS) & (tested - {"Sequential"}) == set()
