"""Layers over sequences against PyTorch: recurrent ones, attention, Transformer, packing."""

from typing import Any

import numpy as np
import pytest
from both import agree, check

import ddpgrad
from ddpgrad import nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),
]

RNG = np.random.default_rng(1)


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


RECURRENT = {
    "rnn": lambda n: n.RNN(3, 4),
    "rnn-relu": lambda n: n.RNN(3, 4, 2, "relu", bias=False, bidirectional=True),
    "lstm": lambda n: n.LSTM(3, 4, 2),
    "lstm-both": lambda n: n.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda n: n.LSTM(3, 4, 2, proj_size=2, bidirectional=True),
    "gru": lambda n: n.GRU(3, 4),
    "gru-both": lambda n: n.GRU(3, 4, 2, bias=False, bidirectional=True, batch_first=True),
}


@pytest.mark.parametrize("form", ["padded", "packed", "cell"])
@pytest.mark.parametrize("case", [c for c in RECURRENT if c != "lstm-projected"])
def test_functions_of_torch(case: str, form: str) -> None:
    """`torch.lstm`, `torch.ops.aten.gru`, `torch.rnn_tanh_cell` and their like, with the module's weights."""

    def program(torch: Any) -> Any:
        module = RECURRENT[case](torch.nn)
        name, directions = module.mode.lower(), 2 if module.bidirectional else 1
        count = module.num_layers * directions
        states = [torch.tensor(STATES[i][:count], dtype=torch.float32) for i in range(2)]
        hx: Any = states if name == "lstm" else states[0]
        x = torch.tensor(STATES[2], dtype=torch.float32)
        options = (module.bias, module.num_layers, 0.0, True, module.bidirectional)
        if form == "cell":
            step = getattr(torch, f"{name}_cell")
            one = [state[0] for state in states] if name == "lstm" else states[0][0]
            found = step(x[0], one, *module.all_weights[0])
        elif form == "packed":
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 2])
            found = getattr(torch.ops.aten, name)(
                packed.data, packed.batch_sizes, hx, module._flat_weights, *options
            )
        else:
            x = x.transpose(0, 1) if module.batch_first else x
            found = getattr(torch, name)(x, hx, module._flat_weights, *options, module.batch_first)
        found = list(found) if isinstance(found, tuple) else [found]
        return found, torch.autograd.grad(found[0].square().sum(), module.all_weights[0])

    agree(program, 1e-5)


STATES = _values(4, 2, 4), _values(4, 2, 4), _values(4, 2, 3)


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent(case: str) -> None:
    make, like = RECURRENT[case], RECURRENT[case](nn)
    count = like.num_layers * (2 if like.bidirectional else 1)
    sizes = [like.proj_size or 4, 4][: 2 if like.mode == "LSTM" else 1]
    states = [_values(count, 5 if like.batch_first else 2, size) for size in sizes]

    def started(t: Any, module: Any, x: Any, *states: Any) -> Any:
        return module(x, states if len(states) > 1 else states[0])

    check(make, [_values(5, 2, 3), *states], call=started)
    check(make, [_values(5, 3)])


@pytest.mark.parametrize("case", RECURRENT)
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(case: str, ordered: bool) -> None:
    lengths = [5, 4, 4, 1] if ordered else [4, 1, 5, 4]
    first = RECURRENT[case](nn).batch_first

    def packed(t: Any, module: Any, x: Any) -> Any:
        tools = t.nn.utils.rnn
        packed = tools.pack_padded_sequence(x, lengths, first, enforce_sorted=ordered)
        out, last = module(packed)
        padded, sizes = tools.pad_packed_sequence(out, first, padding_value=0.5, total_length=6)
        assert sizes.tolist() == lengths
        return packed.data, padded, last

    check(RECURRENT[case], [_values(4, 5, 3) if first else _values(5, 4, 3)], call=packed)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(name: str) -> None:
    for shape in ((2, 3), (3,)):
        check(lambda n: getattr(n, name)(3, 4), [_values(*shape)], call=lambda t, m, x: m(x, m(x)))


def test_dropout_between_recurrent_layers_follows_the_mode() -> None:
    layer = nn.LSTM(3, 4, 2, dropout=1.0)
    x = ddpgrad.tensor(_values(5, 2, 3).astype(np.float32))
    assert not ddpgrad.equal(layer(x)[0], layer.eval()(x)[0])


def test_padding_and_packing() -> None:
    arrays = [_values(n, 2) for n in (2, 4, 1)]

    def program(t: Any) -> Any:
        tools, tensors = t.nn.utils.rnn, [t.tensor(a) for a in arrays]
        options = ({}, {"batch_first": True}, {"padding_value": 2.0, "padding_side": "left"})
        pack = tools.pack_sequence(tensors, enforce_sorted=False)
        for a, b in zip(tools.unpack_sequence(pack), arrays, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        with pytest.raises(RuntimeError, match="sorted in decreasing order"):
            tools.pack_sequence(tensors)
        return [*(tools.pad_sequence(tensors, **of) for of in options), *pack]

    agree(program, 0.0)


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

    def attend(t: Any, module: Any, x: Any) -> Any:
        more = {k: t.tensor(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        return module(x, x, x, **more)

    x = _values(2, 4, 6) if options.get("batch_first") else _values(4, 2, 6)
    check(lambda n: n.MultiheadAttention(6, 2, **options), [x], call=attend)


def test_attention_to_another_sequence() -> None:
    inputs = [_values(4, 2, 6), _values(3, 2, 5), _values(3, 2, 4)]
    check(lambda n: n.MultiheadAttention(6, 3, kdim=5, vdim=4), inputs)
    inputs = [_values(4, 6), _values(3, 6)]
    check(lambda n: n.MultiheadAttention(6, 3), inputs, call=lambda t, m, q, k: m(q, k, k))


def test_grouped_query_attention() -> None:
    mask = RNG.random((5, 6)) > 0.3
    mask[2] = False  # a query that sees nothing gives 0

    def attend(t: Any, module: Any, *tensors: Any) -> Any:
        function = t.nn.functional.scaled_dot_product_attention
        return function(*tensors, attn_mask=t.tensor(mask), scale=0.3, enable_gqa=True)

    inputs = [_values(2, 4, 5, 3), _values(2, 2, 6, 3), _values(2, 2, 6, 3)]
    check(lambda n: n.Identity(), inputs, call=attend, orders=1)


@pytest.mark.parametrize("options", [
    {}, {"norm_first": True, "activation": "gelu", "bias": False}, {"batch_first": True, "layer_norm_eps": 1e-3},
])  # fmt: skip
def test_transformer(options: dict[str, Any]) -> None:
    def masked(t: Any, module: Any, src: Any, tgt: Any) -> Any:
        mask, padding = t.nn.Transformer.generate_square_subsequent_mask(3), t.tensor(PADDED)
        more = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        return module(src, tgt, tgt_mask=mask.double(), **more)

    shapes = ((2, 4, 6), (2, 3, 6)) if options.get("batch_first") else ((4, 2, 6), (3, 2, 6))
    inputs = [_values(*shape) for shape in shapes]
    check(lambda n: n.Transformer(6, 2, 2, 1, 8, dropout=0.0, **options), inputs, call=masked)
