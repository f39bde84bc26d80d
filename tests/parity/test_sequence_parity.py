"""Layers over sequences against PyTorch: recurrent ones, attention, Transformer, packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ddpgrad
from ddpgrad import nn

oracle = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:enable_nested_tensor"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),
]

RNG = np.random.default_rng(1)


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def _pair(make: Any) -> tuple[Any, Any]:
    """The same module on both stacks, from the same seed, in float64."""
    oracle.manual_seed(3)
    ddpgrad.manual_seed(3)
    theirs, ours = make(oracle), make(ddpgrad)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for expected, found in zip(theirs.parameters(), ours.parameters(), strict=True):
        _close(found, expected, 1e-6)  # the seed alone makes them equal
    return theirs.double(), ours.double()


def _close(found: Any, expected: Any, tolerance: float = 1e-7) -> None:
    found, expected = (t.detach().numpy() for t in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in _flat(part)]
    return [] if result is None else [result]


def _compare(theirs: Any, ours: Any, run: Any, inputs: dict[str, np.ndarray]) -> None:
    """Results, gradients of the inputs and of the parameters, of `run(stack, module, tensors)`."""
    grads = []
    for stack, module in ((oracle, theirs), (ddpgrad, ours)):
        tensors = {k: stack.tensor(v).requires_grad_(v.dtype.kind == "f") for k, v in inputs.items()}
        results = _flat(run(stack, module, tensors))
        total = sum((r * r.detach().cos()).sum() for r in results if r.requires_grad)
        total.backward()
        found = [t.grad for t in tensors.values() if t.requires_grad] + [p.grad for p in module.parameters()]
        grads.append((results, found))
    for kind in (0, 1):
        for expected, found in zip(grads[0][kind], grads[1][kind], strict=True):
            assert (expected is None) == (found is None)
            if expected is not None:
                _close(found, expected, 1e-6)


RECURRENT = {
    "rnn": lambda t: t.nn.RNN(3, 4),
    "rnn-relu": lambda t: t.nn.RNN(3, 4, 2, "relu", bias=False, bidirectional=True),
    "lstm": lambda t: t.nn.LSTM(3, 4, 2),
    "lstm-both": lambda t: t.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda t: t.nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True),
    "gru": lambda t: t.nn.GRU(3, 4),
    "gru-both": lambda t: t.nn.GRU(3, 4, 2, bias=False, bidirectional=True, batch_first=True),
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent(case: str) -> None:
    theirs, ours = _pair(RECURRENT[case])
    directions = 2 if ours.bidirectional else 1
    count = ours.num_layers * directions
    sizes = [ours.proj_size or 4, 4][: 2 if ours.mode == "LSTM" else 1]
    inputs = {"x": _values(5, 2, 3)}
    for i, size in enumerate(sizes):
        inputs[f"h{i}"] = _values(count, 5 if ours.batch_first else 2, size)

    def started(stack: Any, module: Any, tensors: Any) -> Any:
        states = [t for k, t in tensors.items() if k != "x"]
        return module(tensors["x"], tuple(states) if len(states) > 1 else states[0])

    _compare(theirs, ours, started, inputs)
    _compare(theirs, ours, lambda stack, module, tensors: module(tensors["x"][:, 0]), inputs)


@pytest.mark.parametrize("case", RECURRENT)
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(case: str, ordered: bool) -> None:
    theirs, ours = _pair(RECURRENT[case])
    lengths = [5, 4, 4, 1] if ordered else [4, 1, 5, 4]
    first = ours.batch_first

    def run(stack: Any, module: Any, tensors: Any) -> Any:
        tools = stack.nn.utils.rnn
        packed = tools.pack_padded_sequence(tensors["x"], lengths, first, enforce_sorted=ordered)
        out, last = module(packed)
        padded, sizes = tools.pad_packed_sequence(out, first, padding_value=0.5, total_length=6)
        assert sizes.tolist() == lengths
        return packed.data, padded, last

    _compare(theirs, ours, run, {"x": _values(4, 5, 3) if first else _values(5, 4, 3)})


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(name: str) -> None:
    theirs, ours = _pair(lambda t: getattr(t.nn, name)(3, 4))

    def twice(stack: Any, module: Any, tensors: Any) -> Any:
        return module(tensors["x"], module(tensors["x"]))

    _compare(theirs, ours, twice, {"x": _values(2, 3)})
    _compare(theirs, ours, twice, {"x": _values(3)})


def test_dropout_between_recurrent_layers_follows_the_mode() -> None:
    layer = nn.LSTM(3, 4, 2, dropout=1.0)
    x = ddpgrad.tensor(_values(5, 2, 3).astype(np.float32))
    assert not ddpgrad.equal(layer(x)[0], layer.eval()(x)[0])


@pytest.mark.parametrize("case", RECURRENT)
def test_second_gradients_of_recurrent_layers(case: str) -> None:
    theirs, ours = _pair(RECURRENT[case])
    values = _values(3, 2, 3)
    found = []
    for stack, module in ((oracle, theirs), (ddpgrad, ours)):
        x = stack.tensor(values, requires_grad=True)
        (g,) = stack.autograd.grad(module(x)[0].sin().sum(), [x], create_graph=True)
        (g * g).sum().backward()
        found.append([x.grad, *(p.grad for p in module.parameters())])
    for expected, got in zip(*found, strict=True):
        assert (expected is None) == (got is None)
        if expected is not None:
            _close(got, expected, 1e-6)


def test_padding_and_packing() -> None:
    arrays = [_values(n, 2) for n in (2, 4, 1)]
    for options in ({}, {"batch_first": True}, {"padding_value": 2.0, "padding_side": "left"}):
        _close(
            nn.utils.rnn.pad_sequence([ddpgrad.tensor(a) for a in arrays], **options),
            oracle.nn.utils.rnn.pad_sequence([oracle.tensor(a) for a in arrays], **options),
        )
    packs = [
        stack.nn.utils.rnn.pack_sequence([stack.tensor(a) for a in arrays], enforce_sorted=False)
        for stack in (oracle, ddpgrad)
    ]
    for expected, found in zip(*packs, strict=True):
        assert found.tolist() == expected.tolist()
    for a, b in zip(nn.utils.rnn.unpack_sequence(packs[1]), arrays, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        nn.utils.rnn.pack_sequence([ddpgrad.tensor(a) for a in arrays])


HIDDEN = np.triu(np.ones((4, 4), bool), 1)
PADDED = np.array([[False, False, False, True], [False, False, False, False]])
ATTENTION = {
    "plain": ({}, {}),
    "no-weights": ({"bias": False}, {"need_weights": False}),
    "each-head": ({}, {"average_attn_weights": False}),
    "bool-mask": ({}, {"attn_mask": HIDDEN}),
    "added-mask": ({}, {"attn_mask": np.where(HIDDEN, -1.5, 0.5), "need_weights": False}),
    "mask-of-heads": ({}, {"attn_mask": np.stack([HIDDEN, HIDDEN.T] * 2)}),
    "padding": ({"batch_first": True}, {"key_padding_mask": PADDED, "need_weights": False}),
    "both": ({"batch_first": True}, {"key_padding_mask": PADDED, "attn_mask": np.where(HIDDEN, -9.0, 0)}),
    "causal": ({}, {"attn_mask": HIDDEN, "is_causal": True, "need_weights": False}),
    "more": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": HIDDEN}),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_multihead_attention(case: str) -> None:
    options, arguments = ATTENTION[case]
    theirs, ours = _pair(lambda t: t.nn.MultiheadAttention(6, 2, **options))

    def run(stack: Any, module: Any, tensors: Any) -> Any:
        more = {k: stack.tensor(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        return module(tensors["x"], tensors["x"], tensors["x"], **more)

    _compare(theirs, ours, run, {"x": _values(2, 4, 6) if ours.batch_first else _values(4, 2, 6)})


def test_attention_to_another_sequence() -> None:
    theirs, ours = _pair(lambda t: t.nn.MultiheadAttention(6, 3, kdim=5, vdim=4))
    inputs = {"q": _values(4, 2, 6), "k": _values(3, 2, 5), "v": _values(3, 2, 4)}
    _compare(theirs, ours, lambda stack, module, tensors: module(*tensors.values()), inputs)
    theirs, ours = _pair(lambda t: t.nn.MultiheadAttention(6, 3))
    inputs = {"q": _values(4, 6), "k": _values(3, 6)}
    _compare(theirs, ours, lambda stack, module, t: module(t["q"], t["k"], t["k"]), inputs)


def test_grouped_query_attention() -> None:
    q, k, v = _values(2, 4, 5, 3), _values(2, 2, 6, 3), _values(2, 2, 6, 3)
    mask = RNG.random((5, 6)) > 0.3
    mask[2] = False  # a query that sees nothing gives 0
    found = []
    for stack in (oracle, ddpgrad):
        tensors = [stack.tensor(a, requires_grad=True) for a in (q, k, v)]
        attend = stack.nn.functional.scaled_dot_product_attention
        out = attend(*tensors, attn_mask=stack.tensor(mask), scale=0.3, enable_gqa=True)
        out.sin().sum().backward()
        found.append([out, *(t.grad for t in tensors)])
    for expected, got in zip(*found, strict=True):
        _close(got, expected, 1e-6)


@pytest.mark.parametrize("options", [
    {}, {"norm_first": True, "activation": "gelu", "bias": False}, {"batch_first": True, "layer_norm_eps": 1e-3},
])  # fmt: skip
def test_transformer(options: dict[str, Any]) -> None:
    theirs, ours = _pair(lambda t: t.nn.Transformer(6, 2, 2, 1, 8, dropout=0.0, **options))
    first = options.get("batch_first", False)

    def run(stack: Any, module: Any, tensors: Any) -> Any:
        mask = stack.nn.Transformer.generate_square_subsequent_mask(3)
        padding = stack.tensor(PADDED)
        return module(
            tensors["src"], tensors["tgt"], tgt_mask=mask.double(), src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip

    shapes = ((2, 4, 6), (2, 3, 6)) if first else ((4, 2, 6), (3, 2, 6))
    _compare(theirs, ours, run, {"src": _values(*shapes[0]), "tgt": _values(*shapes[1])})
