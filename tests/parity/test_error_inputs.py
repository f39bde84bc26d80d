"""The wrong arguments of PyTorch's operator database: what PyTorch refuses is refused here."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="the operator database needs expecttest: pip install expecttest")
sys.path.append(str(Path(__file__).parent))

import torch
from coverage_reasons import left_out
from op_db import entries
from op_db_case import describe
from op_db_values import Converter, label, ours

pytestmark = pytest.mark.torch

ENTRIES = {label(e): e for e in entries() if e.error_inputs_func is not None and left_out(label(e)) is None}
KINDS = (RuntimeError, TypeError, ValueError, IndexError)
"""What errors are made of; NotImplementedError is a RuntimeError. Another kind comes from an accident."""

_REFLECTED = [f"__r{name}__" for name in ("add", "div", "mul", "and", "or", "xor")]
# By name, the numbers of the inputs that are accepted here. This list may only shrink.
ACCEPTED: dict[str, set[int]] = {
    # A number as the first operand, for which PyTorch has no overload: it counts as a tensor.
    **{name: {0} for name in ("copysign", "fmod", "rsub", *_REFLECTED)},
    # `out` shares memory with the indices: here both are made of one NumPy array, and do not know of each other.
    "gather": {7},
    "take": {2},
}


def _accepted(entry: Any, function: Any) -> dict[int, str]:
    """The error inputs, by number, that PyTorch refuses and ddpgrad does not, or not with an error of its own."""
    found: dict[int, str] = {}
    for number, wrong in enumerate(entry.error_inputs_func(entry, "cpu")):
        sample = wrong.sample_input
        try:
            entry.op(sample.input, *sample.args, **sample.kwargs)
            continue  # an input that is wrong on GPUs only
        except Exception as error:
            theirs = error
        convert = Converter()
        try:
            given = convert(sample.input), convert(tuple(sample.args)), convert(dict(sample.kwargs))
        except Exception:
            continue  # of a layout or dtype that there is not
        try:
            function(given[0], *given[1], **given[2])
        except KINDS:
            continue
        except Exception as error:
            found[number] = f"{type(error).__name__}: {error}"
        else:
            found[number] = f"{describe(sample)}, where PyTorch says: {theirs}"
    return found


@pytest.mark.parametrize("name", ENTRIES)
def test_wrong_arguments_are_refused(name: str):
    function = ours(ENTRIES[name].op)
    if function is None:
        pytest.skip("there is no such function")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = _accepted(ENTRIES[name], function)
    assert set(found) == ACCEPTED.get(name, set()), found
