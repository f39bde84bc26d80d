"""Tensors on meta against PyTorch's: shapes and dtypes of results, and what is refused; `test_same_answers.py` has steps and errors."""

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
