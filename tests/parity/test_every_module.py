"""Every module class of torch.nn against PyTorch, once each, in train and eval mode: none may be forgotten.

Options and edges of the families are tested in the files beside this one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ddpgrad
from ddpgrad.compat import absent

sys.path.append(str(Path(__file__).parent))

from coverage_reasons import left_out_name

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(5)
# They have no forward of their own, or are bases.
ABSTRACT = {
    "Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "RNNBase", "RNNCellBase", "Container",
}  # fmt: skip


def _x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _unit(*shape: int) -> np.ndarray:
    return RNG.random(shape).astype(np.float32)


def _numbers(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape)


def _signs(*shape: int) -> np.ndarray:
    return np.where(RNG.random(shape) < 0.5, -1, 1).astype(np.float32)


ROWS, SIGNAL, IMAGE, VOLUME = (2, 4), (2, 4, 6), (2, 4, 6, 6), (2, 4, 4, 4, 4)
BY_DIMS = {1: SIGNAL, 2: IMAGE, 3: VOLUME}

# Class -> (a module of it, from `nn`; its inputs, of which floating-point ones get gradients).
EXAMPLES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "AdaptiveLogSoftmaxWithLoss": (lambda n: n.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], 2.0), (_x(5, 4), _numbers(9, 5))),
    "Bilinear": (lambda n: n.Bilinear(4, 3, 2), (_x(2, 4), _x(2, 3))),
    "ChannelShuffle": (lambda n: n.ChannelShuffle(2), (_x(*IMAGE),)),
    "CosineSimilarity": (lambda n: n.CosineSimilarity(), (_x(*ROWS), _x(*ROWS))),
    "LinearCrossEntropyLoss": (
        lambda n: n.LinearCrossEntropyLoss(
            4, 9, bias=True, weight=None, options=n.LinearCrossEntropyOptions(batch_chunk_size=2)
        ),
        (_x(5, 4), _numbers(9, 5)),
    ),
    "DataParallel": (lambda n: n.DataParallel(n.Linear(4, 3)), (_x(*ROWS),)),
    "Embedding": (lambda n: n.Embedding(6, 3, padding_idx=1), (_numbers(6, 2, 4),)),
    "EmbeddingBag": (lambda n: n.EmbeddingBag(6, 3), (_numbers(6, 2, 4),)),
    "Flatten": (lambda n: n.Flatten(), (_x(*IMAGE),)),
    "Fold": (lambda n: n.Fold((4, 5), 2, padding=1), (_x(2, 8, 30),)),
    "FractionalMaxPool2d": (lambda n: n.FractionalMaxPool2d(2, output_size=3), (_x(*IMAGE),)),
    "FractionalMaxPool3d": (lambda n: n.FractionalMaxPool3d(2, output_ratio=0.5), (_x(*VOLUME),)),
    "GroupNorm": (lambda n: n.GroupNorm(2, 4), (_x(*IMAGE),)),
    "Identity": (lambda n: n.Identity(), (_x(*ROWS),)),
    "LayerNorm": (lambda n: n.LayerNorm(4), (_x(*ROWS),)),
    "LazyLinear": (lambda n: n.LazyLinear(3), (_x(*ROWS),)),
    "Linear": (lambda n: n.Linear(4, 3), (_x(*ROWS),)),
    "LocalResponseNorm": (lambda n: n.LocalResponseNorm(2), (_x(*IMAGE),)),
    "MultiheadAttention": (lambda n: n.MultiheadAttention(4, 2), (_x(3, 2, 4), _x(5, 2, 4), _x(5, 2, 4))),
    "PairwiseDistance": (lambda n: n.PairwiseDistance(), (_x(*ROWS), _x(*ROWS))),
    "PixelShuffle": (lambda n: n.PixelShuffle(2), (_x(*IMAGE),)),
    "PixelUnshuffle": (lambda n: n.PixelUnshuffle(2), (_x(*IMAGE),)),
    "RMSNorm": (lambda n: n.RMSNorm(4), (_x(*ROWS),)),
    "Sequential": (lambda n: n.Sequential(n.Linear(4, 3), n.Tanh()), (_x(*ROWS),)),
    "Softmax2d": (lambda n: n.Softmax2d(), (_x(*IMAGE),)),
    "Threshold": (lambda n: n.Threshold(0.1, 20.0), (_x(*ROWS),)),
    "Transformer": (lambda n: n.Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True), (_x(2, 3, 4), _x(2, 5, 4))),
    "TransformerDecoder": (
        lambda n: n.TransformerDecoder(n.TransformerDecoderLayer(4, 2, 8, 0.0), 2, n.LayerNorm(4)),
        (_x(3, 2, 4), _x(5, 2, 4)),
    ),
    "TransformerDecoderLayer": (lambda n: n.TransformerDecoderLayer(4, 2, 8, 0.0), (_x(3, 2, 4), _x(5, 2, 4))),
    "TransformerEncoder": (
        lambda n: n.TransformerEncoder(n.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2),
        (_x(2, 3, 4),),
    ),
    "TransformerEncoderLayer": (lambda n: n.TransformerEncoderLayer(4, 2, 8, 0.0, "gelu"), (_x(3, 2, 4),)),
    "Unflatten": (lambda n: n.Unflatten(1, (2, 2)), (_x(*IMAGE),)),
    "Unfold": (lambda n: n.Unfold(2, stride=2), (_x(*IMAGE),)),
    "Upsample": (lambda n: n.Upsample(scale_factor=2, mode="bilinear"), (_x(*IMAGE),)),
    "UpsamplingBilinear2d": (lambda n: n.UpsamplingBilinear2d(scale_factor=2), (_x(*IMAGE),)),
    "UpsamplingNearest2d": (lambda n: n.UpsamplingNearest2d(scale_factor=2), (_x(*IMAGE),)),
    # losses
    "BCELoss": (lambda n: n.BCELoss(), (_unit(*ROWS), _unit(*ROWS))),
    "BCEWithLogitsLoss": (lambda n: n.BCEWithLogitsLoss(), (_x(*ROWS), _unit(*ROWS))),
    "CTCLoss": (
        lambda n: n.CTCLoss(),
        (_x(6, 2, 4) - 2, _numbers(3, 2, 2) + 1, np.array([6, 5]), np.array([2, 1])),
    ),
    "CosineEmbeddingLoss": (lambda n: n.CosineEmbeddingLoss(), (_x(*ROWS), _x(*ROWS), _signs(2).astype(np.int64))),
    "CrossEntropyLoss": (lambda n: n.CrossEntropyLoss(), (_x(*ROWS), _numbers(4, 2))),
    "GaussianNLLLoss": (lambda n: n.GaussianNLLLoss(), (_x(*ROWS), _x(*ROWS), _unit(*ROWS))),
    "HingeEmbeddingLoss": (lambda n: n.HingeEmbeddingLoss(), (_x(*ROWS), _signs(*ROWS).astype(np.int64))),
    "KLDivLoss": (lambda n: n.KLDivLoss(reduction="batchmean"), (_x(*ROWS), _unit(*ROWS))),
    "MarginRankingLoss": (lambda n: n.MarginRankingLoss(), (_x(2), _x(2), _signs(2))),
    "MultiLabelMarginLoss": (lambda n: n.MultiLabelMarginLoss(), (_x(*ROWS), np.array([[1, 2, -1, 0], [3, -1, 0, 1]]))),
    "MultiMarginLoss": (lambda n: n.MultiMarginLoss(), (_x(*ROWS), _numbers(4, 2))),
    "NLLLoss": (lambda n: n.NLLLoss(), (_x(*ROWS), _numbers(4, 2))),
    "SoftMarginLoss": (lambda n: n.SoftMarginLoss(), (_x(*ROWS), _signs(*ROWS).astype(np.int64))),
    "TripletMarginLoss": (lambda n: n.TripletMarginLoss(), (_x(*ROWS), _x(*ROWS), _x(*ROWS))),
    "TripletMarginWithDistanceLoss": (
        lambda n: n.TripletMarginWithDistanceLoss(), (_x(*ROWS), _x(*ROWS), _x(*ROWS)),
    ),
}  # fmt: skip


def _family(names: str, make: Callable[[Any, str], Any], *inputs: Any) -> None:
    for name in names.split():
        EXAMPLES[name] = (lambda n, name=name: make(n, name), inputs)


_family(
    "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU RReLU ReLU ReLU6 SELU "
    "SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink",
    lambda n, name: getattr(n, name)(),
    _x(*ROWS) * 3,
)
_family("LogSoftmax Softmax Softmin", lambda n, name: getattr(n, name)(1), _x(*ROWS))
_family(
    "HuberLoss L1Loss MSELoss MultiLabelSoftMarginLoss PoissonNLLLoss SmoothL1Loss",
    lambda n, name: getattr(n, name)(),
    _x(*ROWS),
    _unit(*ROWS),
)
# What dropout keeps is drawn otherwise here: with p = 1 there is nothing to draw.
_family("AlphaDropout Dropout", lambda n, name: getattr(n, name)(1.0), _x(*ROWS))
_family("FeatureAlphaDropout", lambda n, name: getattr(n, name)(1.0), _x(*IMAGE))
_family("RNN LSTM GRU", lambda n, name: getattr(n, name)(4, 3, 2, bidirectional=True), _x(5, 2, 4))
_family("SyncBatchNorm", lambda n, name: getattr(n, name)(4), _x(*IMAGE))  # without a process group
_family("RNNCell LSTMCell GRUCell", lambda n, name: getattr(n, name)(4, 3), _x(*ROWS))
for _dims, _shape in BY_DIMS.items():
    _input, _d = _x(*_shape), f"{_dims}d"
    _family(f"Dropout{_d}", lambda n, name: getattr(n, name)(1.0), _input)
    _family(f"Conv{_d} ConvTranspose{_d}", lambda n, name: getattr(n, name)(4, 2, 3, padding=1), _input)
    _family(f"LazyConv{_d} LazyConvTranspose{_d}", lambda n, name: getattr(n, name)(2, 3, padding=1), _input)
    _family(f"BatchNorm{_d} InstanceNorm{_d}", lambda n, name: getattr(n, name)(4), _input)
    _family(f"LazyBatchNorm{_d} LazyInstanceNorm{_d}", lambda n, name: getattr(n, name)(), _input)
    _family(f"AvgPool{_d} MaxPool{_d}", lambda n, name: getattr(n, name)(2), _input)
    _family(f"AdaptiveAvgPool{_d} AdaptiveMaxPool{_d}", lambda n, name: getattr(n, name)(3), _input)
    _family(f"LPPool{_d}", lambda n, name: getattr(n, name)(2.0, 2), np.abs(_input))
    _family(
        f"CircularPad{_d} ReflectionPad{_d} ReplicationPad{_d} ZeroPad{_d}",
        lambda n, name: getattr(n, name)(1),
        _input,
    )
    _family(f"ConstantPad{_d}", lambda n, name: getattr(n, name)(1, 0.5), _input)
    _pooled, _places = getattr(oracle.nn, f"MaxPool{_d}")(2, return_indices=True)(oracle.tensor(_input))
    _family(f"MaxUnpool{_d}", lambda n, name: getattr(n, name)(2), _pooled.numpy(), _places.numpy())


def _classes() -> list[str]:
    found = [n for n in dir(oracle.nn) if isinstance(getattr(oracle.nn, n), type)]
    return [n for n in found if issubclass(getattr(oracle.nn, n), oracle.nn.Module)]


def test_no_class_is_forgotten() -> None:
    """Each has an example here, or is left out for a reason, which `docs/coverage.md` or its use gives."""
    in_name_only = set(absent.FORMER_LAYERS.names.split())
    forgotten = set(_classes()) - set(EXAMPLES) - ABSTRACT - in_name_only
    assert {n for n in forgotten if hasattr(ddpgrad.nn, n) or left_out_name("nn", n) is None} == set()
    assert set(EXAMPLES) - set(_classes()) == set()


def _run(stack: Any, name: str, training: bool, device: str = "cpu") -> dict[str, Any]:
    """Everything that can be compared, of one forward and backward."""
    make, inputs = EXAMPLES[name]
    stack.manual_seed(3)
    with stack.device(device):
        module = make(stack.nn).train(training)
    tensors = [stack.tensor(x, device=device, requires_grad=x.dtype == np.float32) for x in inputs]
    first = repr(module)
    result = module(*tensors)
    # No name of the result's parts: a cell gives a pair, a recurrent layer (output, (h, c)).
    outputs = [t for t in _flat(result) if t is not None]
    sum((o.sin() * (i + 1)).sum() for i, o in enumerate(outputs) if o.requires_grad).backward()
    return {
        "repr": [first, repr(module)],
        "outputs": outputs,
        "input gradients": [t.grad for t in tensors],
        "state": dict(module.state_dict()),
        "gradients": {k: p.grad for k, p in module.named_parameters()},
    }


def _flat(result: Any) -> list[Any]:
    return [t for part in result for t in _flat(part)] if isinstance(result, tuple) else [result]


def _same(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected), where
        for f, e in zip(found, expected, strict=True):
            _same(f, e, where)
    elif isinstance(expected, oracle.Tensor):
        f, e = found.detach().numpy(), expected.detach().numpy()
        assert (f.dtype, f.shape) == (e.dtype, e.shape), where
        np.testing.assert_allclose(f, e, rtol=2e-5, atol=2e-5, err_msg=where)
    else:
        assert found == expected, where


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_module(name: str, mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's about nested tensors and lazy layers
        expected = _run(oracle, name, mode == "train")
    found = _run(ddpgrad, name, mode == "train")
    for what, values in expected.items():
        _same(found[what], values, what)


# It asks its targets how many of them are in each cluster.
READ = {"AdaptiveLogSoftmaxWithLoss"}


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - READ))
def test_module_on_meta(name: str) -> None:
    found, expected = (_described(_run(ddpgrad, name, True, device)) for device in ("meta", "cpu"))
    assert found == expected


def _described(value: Any) -> Any:
    """Shapes and dtypes in place of tensors."""
    if isinstance(value, dict):
        return {key: _described(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_described(part) for part in value]
    return (value.shape, value.dtype) if isinstance(value, ddpgrad.Tensor) else value
