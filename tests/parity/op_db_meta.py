"""Runs PyTorch's operator database on tensors of the meta device, and says of an op whether shapes and dtypes are known.

Results and gradients have the shapes and dtypes of PyTorch's results on a CPU. An op "needs elements" where it says so
by `NoElementsError`, and PyTorch's function refuses tensors on meta, too.
"""

from typing import Any

import torch
from coverage_reasons import left_out
from op_db_case import describe
from op_db_values import Converter, Different, Lacking, label, leaves, ours

import ddpgrad


def on_meta(value: Any, kind: type) -> Any:
    """A sample's arguments with the tensors on meta, that require a gradient where they did."""
    if isinstance(value, kind):
        moved: Any = value
        return moved.detach().to("meta").requires_grad_(moved.requires_grad)
    if isinstance(value, (list, tuple)) and not isinstance(value, (torch.Size, ddpgrad.Size)):
        return type(value)(on_meta(v, kind) for v in value)
    if isinstance(value, dict):
        return {k: on_meta(v, kind) for k, v in value.items()}
    return ddpgrad.device("meta") if isinstance(value, ddpgrad.device) else value


def check(entry: Any, samples: int, dtypes: tuple[torch.dtype, ...]) -> tuple[str, str]:
    """("works", "needs elements", "lacks", "wrong" or "left out", what is to be said of it)."""
    if left_out(label(entry)) is not None:
        return "left out", ""
    function, ran, lacks = ours(entry.op), 0, ""
    if function is None:
        return "left out", ""
    for dtype in dtypes:
        if dtype not in entry.dtypes:
            continue
        with_grad = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
        torch.manual_seed(0)
        given = list(entry.sample_inputs_func(entry, "cpu", dtype, with_grad))
        for sample in given[:: max(1, len(given) // samples)][:samples]:
            try:
                want = entry.op(sample.input, *sample.args, **sample.kwargs)
                convert = Converter()
                given_ours = [convert(v) for v in (sample.input, tuple(sample.args), dict(sample.kwargs))]
            except Exception:
                continue
            try:
                _compare(function, on_meta(given_ours, ddpgrad.Tensor), want, with_grad)
                ran += 1
            except (ddpgrad.errors.NoElementsError, NotImplementedError, Lacking) as error:
                lacks = str(error)
            except Exception as error:
                if not isinstance(error, Different) and _theirs_refuses(entry.op, sample):
                    lacks = f"{type(error).__name__}: {error}"
                    continue
                return "wrong", f"{dtype} {describe(sample)}: {type(error).__name__} {error}"[:400]
            else:
                continue
            if not _theirs_refuses(entry.op, sample):
                return "lacks", f"{dtype} {describe(sample)}: {lacks}"[:300]
    if not ran and not lacks:
        return "left out", ""
    return ("works", "") if ran else ("needs elements", lacks)


def _compare(function: Any, given: Any, want: Any, with_grad: bool) -> None:
    input, args, kwargs = given
    got = list(leaves(function(input, *args, **kwargs), ddpgrad.Tensor))
    expected = list(leaves(want, torch.Tensor))
    if len(got) != len(expected):
        raise Different(f"{len(got)} results, expected {len(expected)}")
    for g, w in zip(got, expected, strict=True):
        if (str(g.dtype), tuple(g.shape)) != (str(w.dtype), tuple(w.shape)):
            raise Different(f"{g.dtype} {list(g.shape)}, expected {w.dtype} {list(w.shape)}")
        if g.device.type != str(kwargs.get("device", "meta")).partition(":")[0]:
            raise Different(f"a result on {g.device}")
    inputs = [t for t in leaves(given, ddpgrad.Tensor) if t.requires_grad]
    outs = [g for g in got if g.requires_grad]
    if not with_grad or not outs:
        return
    ones = [ddpgrad.ones_like(o) for o in outs]
    for t, g in zip(inputs, ddpgrad.autograd.grad(outs, inputs, ones, allow_unused=True), strict=True):
        if g is not None and (g.dtype, g.shape, g.device) != (t.dtype, t.shape, t.device):
            raise Different(f"a gradient {g.dtype} {list(g.shape)} of {t.dtype} {list(t.shape)}")


def _theirs_refuses(function: Any, sample: Any) -> bool:
    try:
        input, args, kwargs = on_meta([sample.input, tuple(sample.args), dict(sample.kwargs)], torch.Tensor)
        function(input, *args, **kwargs)
    except Exception:
        return True
    return False
