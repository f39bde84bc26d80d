"""Tensors on meta against PyTorch's: shapes, dtypes and steps of results, texts, and which error what has no elements is."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="the operator database needs expecttest: pip install expecttest")

import torch
from coverage_reasons import left_out
from op_db import entries
from op_db_meta import check, on_meta
from op_db_values import Converter, label, ours

import ddpgrad

# PyTorch computes these on meta, where here an element is asked for (or, for average pools, integers are refused).
LACKING = {
    "linspace.tensor_overload", "logspace.tensor_overload", "nn.functional.avg_pool1d",
    "nn.functional.avg_pool2d", "nn.functional.avg_pool3d",
}  # fmt: skip
ENTRIES = {label(e): e for e in entries() if left_out(label(e)) is None}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_op_has_the_shapes_and_dtypes_of_pytorch(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, detail = check(
            ENTRIES[name], 3, (torch.float32, torch.bfloat16, torch.complex64, torch.int64)
        )
    assert status in (("lacks",) if name in LACKING else ("works", "needs elements", "left out")), detail


WRONG = sorted(
    name for name, e in ENTRIES.items() if e.error_inputs_func is not None and name != "masked_fill"
)


def _refuses(function: Any, sample: Any, kind: type) -> bool:
    """Whether `function` raises an error for a sample whose tensors are moved to meta."""
    input, args, kwargs = on_meta([sample.input, sample.args, sample.kwargs], kind)
    try:
        function(input, *args, **kwargs)
    except Exception:
        return True
    return False


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_without_elements(name: str):
    entry = ENTRIES[name]
    function: Any = ours(entry.op)
    for wrong in entry.error_inputs_func(entry, "cpu") if function is not None else ():
        sample, convert = wrong.sample_input, Converter()
        try:
            given = SimpleNamespace(**{k: convert(getattr(sample, k)) for k in ("input", "args", "kwargs")})
        except Exception:
            continue  # of a layout or dtype that there is not
        if not _refuses(function, given, ddpgrad.Tensor) and _refuses(entry.op, sample, torch.Tensor):
            # Where it is accepted on a CPU too, `test_error_inputs.py` knows of it.
            function(given.input, *given.args, **given.kwargs)


STEPS = [
    lambda t, x: x.transpose(0, 1) + 1,
    lambda t, x: x.permute(2, 0, 1).exp(),
    lambda t, x: x.transpose(0, 2).contiguous(),
    lambda t, x: x[:, ::2, 1:],
    lambda t, x: x.transpose(0, 1).reshape(4, -1),
    lambda t, x: x.expand(5, 2, 4, 6).sum(0),
    lambda t, x: x.unfold(1, 2, 1),
    lambda t, x: x.transpose(0, 2).clone(),
    lambda t, x: x.transpose(0, 2).to(t.float64),
    lambda t, x: t.cat([x, x], 1),
    lambda t, x: x @ x.transpose(1, 2),
    lambda t, x: x.softmax(-1),
    lambda t, x: t.zeros_like(x),
    lambda t, x: x.diagonal(0, 1, 2),
    lambda t, x: x.view(8, 6).t()[1:],
    lambda t, x: x[:, [0, 1]],
    lambda t, x: t.nn.functional.layer_norm(x, (6,)),
    lambda t, x: t.nn.functional.conv1d(x, t.empty(3, 4, 2, device="meta")),
    lambda t, x: x.as_strided((2, 2), (1, 3), 5),
    lambda t, x: t.stack([x, x], -1),
    lambda t, x: x.squeeze().unsqueeze(1),
    lambda t, x: x.split(2, 1)[1],
]


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_elements_would_lie_as_in_pytorch(number: int):
    want, got = (STEPS[number](t, t.empty(2, 4, 6, device="meta")) for t in (torch, ddpgrad))
    assert (tuple(got.shape), got.stride(), got.storage_offset()) == (
        tuple(want.shape), want.stride(), want.storage_offset(),
    )  # fmt: skip
    assert (repr(got), got.is_contiguous(), got.nbytes) == (repr(want), want.is_contiguous(), want.nbytes)


ASKING = [
    lambda t, x: x.sum().item(),
    lambda t, x: bool(x.sum()),
    lambda t, x: x.tolist(),
    lambda t, x: x.numpy(),
    lambda t, x: x.cpu(),
    lambda t, x: t.ones(2).copy_(x),
    lambda t, x: x.nonzero(),
    lambda t, x: x[x > 0],
    lambda t, x: x.unique(),
    lambda t, x: x + t.ones(2),
    lambda t, x: x.repeat_interleave(x.long()),
    lambda t, x: t.nn.Linear(2, 2, device="meta").to("cpu"),
    lambda t, x: t.nn.Linear(2, 2).load_state_dict(t.nn.Linear(2, 2, device="meta").state_dict()),
    lambda t, x: x.__dlpack__(),
    lambda t, x: x.untyped_storage()[0],
    lambda t, x: x.share_memory_(),
]


@pytest.mark.parametrize("number", range(len(ASKING)))
def test_what_has_no_elements_is_the_same_error(number: int):
    errors = []
    for t in (torch, ddpgrad):
        with pytest.raises(Exception) as caught:
            ASKING[number](t, t.ones(2, device="meta"))
        errors.append(caught.type)
    assert issubclass(errors[1], errors[0])
