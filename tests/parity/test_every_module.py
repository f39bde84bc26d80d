"""Every module class of torch.nn against PyTorch, in train and eval mode, on the samples of PyTorch's own tests.

None may be forgotten. What these samples leave out of the families is tested in the files beside this one.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import ddpgrad
from ddpgrad.compat import absent

pytest.importorskip("expecttest", reason="the module database needs expecttest: pip install expecttest")

import torch
from both import check, run
from coverage_reasons import left_out_name
from op_db_values import Converter, leaves

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db


SAMPLES = 16  # of a class and a mode
DATABASE = {entry.module_cls.__name__: entry for entry in module_db}
# They have no forward of their own, or are bases.
ABSTRACT = {
    "Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "RNNBase", "RNNCellBase", "Container",
}  # fmt: skip


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=_STREAM).requires_grad_()


_STREAM = torch.Generator().manual_seed(5)
ROWS, SIGNAL, IMAGE, VOLUME = (2, 4), (2, 4, 6), (2, 4, 6, 6), (2, 4, 4, 4, 4)

# Classes that the database leaves out: a module, from `nn`; its inputs.
EXAMPLES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "AdaptiveLogSoftmaxWithLoss": (
        lambda n: n.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], 2.0), (_x(5, 4), torch.tensor([0, 8, 4, 3, 6]))
    ),
    "ChannelShuffle": (lambda n: n.ChannelShuffle(2), (_x(*IMAGE),)),
    "CosineSimilarity": (lambda n: n.CosineSimilarity(), (_x(*ROWS), _x(*ROWS))),
    "DataParallel": (lambda n: n.DataParallel(n.Linear(4, 3)), (_x(*ROWS),)),
    "EmbeddingBag": (lambda n: n.EmbeddingBag(6, 3), (torch.tensor([[0, 5, 5], [1, 2, 0]]),)),
    "Flatten": (lambda n: n.Flatten(1, 2), (_x(*IMAGE),)),
    "Fold": (lambda n: n.Fold((4, 5), 2, padding=1), (_x(2, 8, 30),)),
    "Hardsigmoid": (lambda n: n.Hardsigmoid(), (_x(*ROWS),)),
    "Identity": (lambda n: n.Identity(), (_x(*ROWS),)),
    "LazyLinear": (lambda n: n.LazyLinear(3), (_x(*ROWS),)),
    "PairwiseDistance": (lambda n: n.PairwiseDistance(), (_x(*ROWS), _x(*ROWS))),
    "PixelShuffle": (lambda n: n.PixelShuffle(2), (_x(*IMAGE),)),
    "PixelUnshuffle": (lambda n: n.PixelUnshuffle(2), (_x(*IMAGE),)),
    "RReLU": (lambda n: n.RReLU(), (_x(*ROWS),)),
    "Sequential": (lambda n: n.Sequential(n.Linear(4, 3), n.Tanh()), (_x(*ROWS),)),
    "SyncBatchNorm": (lambda n: n.SyncBatchNorm(4), (_x(*IMAGE),)),  # without a process group
    "TransformerDecoder": (
        lambda n: n.TransformerDecoder(n.TransformerDecoderLayer(4, 2, 8, 0.0), 2, n.LayerNorm(4)),
        (_x(3, 2, 4), _x(5, 2, 4)),
    ),
    "TransformerEncoder": (
        lambda n: n.TransformerEncoder(n.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2),
        (_x(2, 3, 4),),
    ),
    "TripletMarginLoss": (lambda n: n.TripletMarginLoss(1.5, 3.0), (_x(*ROWS), _x(*ROWS), _x(*ROWS))),
    "TripletMarginWithDistanceLoss": (
        lambda n: n.TripletMarginWithDistanceLoss(swap=True), (_x(*ROWS), _x(*ROWS), _x(*ROWS)),
    ),
    "Unflatten": (lambda n: n.Unflatten(1, (2, -1)), (_x(*IMAGE),)),
    "Unfold": (lambda n: n.Unfold(2, stride=2), (_x(*IMAGE),)),
    "Upsample": (lambda n: n.Upsample(scale_factor=(2, 1.5), mode="bilinear"), (_x(*IMAGE),)),
    "UpsamplingBilinear2d": (lambda n: n.UpsamplingBilinear2d(scale_factor=2.3), (_x(*IMAGE),)),
    "UpsamplingNearest2d": (lambda n: n.UpsamplingNearest2d((3, 11)), (_x(*IMAGE),)),
    "AlphaDropout": (lambda n: n.AlphaDropout(0.25), (_x(*ROWS),)),
    "Dropout": (lambda n: n.Dropout(0.25), (_x(*ROWS),)),
    "FeatureAlphaDropout": (lambda n: n.FeatureAlphaDropout(0.25), (_x(*IMAGE),)),
}  # fmt: skip


def _family(names: str, make: Callable[[Any, str], Any], *inputs: Any) -> None:
    for name in names.split():
        EXAMPLES[name] = (lambda n, name=name: make(n, name), inputs)


for _dims, _shape in {"1d": SIGNAL, "2d": IMAGE, "3d": VOLUME}.items():
    _input = _x(*_shape)
    _family(f"Dropout{_dims}", lambda n, name: getattr(n, name)(0.25), _input)
    _family(f"LazyBatchNorm{_dims} LazyInstanceNorm{_dims}", lambda n, name: getattr(n, name)(), _input)
    _pooled, _places = getattr(torch.nn, f"MaxPool{_dims}")(2, return_indices=True)(_input.detach())
    _family(f"MaxUnpool{_dims}", lambda n, name: getattr(n, name)(2), _pooled.requires_grad_(), _places)

NAMES = sorted(EXAMPLES.keys() | DATABASE.keys())


def _classes() -> list[str]:
    found = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type)]
    return [n for n in found if issubclass(getattr(torch.nn, n), torch.nn.Module)]


def test_no_class_is_forgotten() -> None:
    """Each is run here, or is left out for a reason, which `docs/coverage.md` or its use gives."""
    in_name_only = set(absent.FORMER_LAYERS.names.split())
    forgotten = set(_classes()) - set(NAMES) - ABSTRACT - in_name_only
    assert {n for n in forgotten if hasattr(ddpgrad.nn, n) or left_out_name("nn", n) is None} == set()
    assert set(NAMES) <= set(_classes())


def _samples(
    name: str, training: bool, dtype: torch.dtype = torch.float64
) -> list[tuple[Callable[[Any], Any], Any, dict[str, Any]]]:
    """What makes the module, from `nn`, and what it is called with."""
    if name in EXAMPLES:
        make, inputs = EXAMPLES[name]
        given = [t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t for t in inputs]
        return [(make, given, {})]
    entry = DATABASE[name]
    torch.manual_seed(1)
    samples = entry.module_inputs_func(
        entry, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    step = max(1, len(samples) // SAMPLES)
    return [
        (partial(_made, name, s.constructor_input), s.forward_input.args, s.forward_input.kwargs)
        for s in samples[::step]
    ]


def _made(name: str, given: Any, nn: Any) -> Any:
    convert: Any = (lambda value: value) if nn is torch.nn else Converter()
    return getattr(nn, name)(*convert(given.args), **convert(given.kwargs))


@pytest.mark.filterwarnings("ignore")  # PyTorch's about nested tensors and lazy layers
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", NAMES)
def test_module(name: str, mode: str, dtype: str) -> None:
    # PyTorch's second gradient of the one takes the first one for a constant.
    orders = 1 if name == "LinearCrossEntropyLoss" else 2
    for make, args, kwargs in _samples(name, mode == "train", getattr(torch, dtype)):
        check(make, args, kwargs, training=mode == "train", dtype=dtype, orders=orders)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_module_on_meta(name: str) -> None:
    if name in ("AdaptiveLogSoftmaxWithLoss", "CTCLoss"):
        pytest.skip("it asks its targets for numbers")
    make, *given = _samples(name, True)[0]
    found = []
    for device in ("meta", "cpu"):
        convert = Converter()
        args, kwargs = convert(given)
        for t in leaves((args, kwargs), ddpgrad.Tensor):
            t.data = t.data.to(device)
        found.append(_described(run(ddpgrad, make, (args, kwargs), device=device)))
    assert found[0] == found[1]


def _described(value: Any) -> Any:
    """Shapes and dtypes in place of tensors."""
    if isinstance(value, dict):
        return {key: _described(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_described(part) for part in value]
    return (value.shape, value.dtype) if isinstance(value, ddpgrad.Tensor) else value
