"""How tensors print and format: as in PyTorch, to the letter where it is installed."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch

RNG = np.random.default_rng(0)

ARRAYS: dict[str, Any] = {
    "scalar": np.float32(1.5),
    "int scalar": np.int64(7),
    "bool scalar": np.bool_(True),
    "empty": np.zeros(0, np.float32),
    "empty ints": np.zeros(0, np.int64),
    "empty matrix": np.zeros((2, 0), np.float32),
    "integers": np.array([1, -20, 300]),
    "int32": np.array([[1, 2], [3, 4]], np.int32),
    "bools": np.array([True, False]),
    "whole floats": np.array([1.0, 2.0, -30.0], np.float32),
    "fractions": np.array([0.5, -1.25, 100.0], np.float32),
    "doubles": np.array([1 / 3, 2.0]),
    "halves": np.array([0.5, 2.0], np.float16),
    "small": np.array([1e-5, 1.0], np.float32),
    "large": np.array([1e9, 1.5], np.float32),
    "large whole": np.array([1e9, 1.0], np.float32),
    "nan and inf": np.array([np.nan, np.inf, -np.inf, 1.5], np.float32),
    "inf beside whole": np.array([-np.inf, 1.0], np.float32),
    "only nan": np.array([np.nan, np.nan], np.float32),
    "zeros": np.zeros((2, 2), np.float32),
    "signed zeros": np.array([0.0, -0.0], np.float32),
    "matrix": RNG.standard_normal((3, 4)).astype(np.float32),
    "three dimensions": RNG.standard_normal((2, 3, 2)).astype(np.float32),
    "long": np.arange(2000),
    "long floats": RNG.standard_normal(1001).astype(np.float32),
    "wrapped": RNG.standard_normal(40).astype(np.float32),
    "large matrix": RNG.standard_normal((50, 60)).astype(np.float32),
    "wide": RNG.standard_normal((3, 30)).astype(np.float32),
    "complex": np.array([1 + 2j, -0.5 - 1e-3j, np.nan + 0j], np.complex64),
    "complex doubles": RNG.standard_normal((2, 3)) * (1e5 - 1j),
    "thousandfold": np.array([1.0, 10000.0], np.float32),
    "empty doubles": np.zeros((0, 3)),
    "four dimensions": np.arange(16).reshape(2, 2, 2, 2),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", ARRAYS)
def test_as_pytorch(name: str):
    oracle = pytest.importorskip("torch")
    array = np.asarray(ARRAYS[name])
    assert repr(torch.from_numpy(array)) == repr(oracle.from_numpy(array))


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [{"precision": 2}, {"sci_mode": True}, {"sci_mode": False}, {"profile": "short"}, {"profile": "full"},
     {"threshold": 5, "edgeitems": 1}, {"linewidth": 40}],
)  # fmt: skip
def test_options_as_pytorch(options: dict[str, Any]):
    oracle = pytest.importorskip("torch")
    try:
        oracle.set_printoptions(**options)
        with torch.printoptions(**options):
            for name, array in ARRAYS.items():
                if np.size(array) < 3000 or options.get("profile") != "full":
                    ours, theirs = torch.tensor(array), oracle.tensor(array)
                    assert repr(ours) == repr(theirs), name
                    if ours.dtype.is_floating_point:
                        assert repr(ours.requires_grad_() * 2) == repr(theirs.requires_grad_() * 2), name
    finally:
        oracle.set_printoptions(profile="default")
    assert torch.get_printoptions()["precision"] == 4


@pytest.mark.torch
def test_bfloat16_as_pytorch():
    oracle = pytest.importorskip("torch")
    values = [0.5, 1.25, -3.0]
    assert repr(torch.tensor(values, dtype=torch.bfloat16)) == repr(
        oracle.tensor(values, dtype=oracle.bfloat16)
    )


def test_history_is_shown():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr(x.detach()) == str(x.detach()) == "tensor([1., 2.])"
    assert repr(x.shape) == "torch.Size([2])"
    assert repr(x.dtype) == "torch.float32"
    assert repr(x.device) == "device(type='cpu')"


def test_default_dtype_is_not_shown():
    torch.set_default_dtype(torch.float64)
    try:
        assert repr(torch.ones(1)) == "tensor([1.])"
        assert repr(torch.ones(1, dtype=torch.float32)) == "tensor([1.], dtype=torch.float32)"
    finally:
        torch.set_default_dtype(torch.float32)


def test_formatting_and_conversion():
    x = torch.tensor([1.234, 2.0])
    assert f"{x[0]:.2f}" == "1.23"
    assert f"{x[1]}" == "2.0"
    with pytest.raises(TypeError, match="unsupported format"):
        f"{x:.2f}"
    assert (float(x[1]), int(x[1]), bool(x[1]), x[1].item()) == (2.0, 2, True, 2.0)
    assert [10, 20, 30][torch.tensor(1)] == 20
    assert torch.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert torch.ones(2, dtype=torch.bfloat16).tolist() == [1.0, 1.0]


def test_python_protocols():
    x = torch.arange(3.0)
    assert len(x) == 3 and [t.item() for t in x] == [0.0, 1.0, 2.0]
    assert reversed(x).tolist() == [2.0, 1.0, 0.0]
    assert 1 in x and torch.tensor(2.0) in x and 5 not in x
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    assert len({x, x, torch.arange(3.0)}) == 2, "tensors are hashed by identity"
    for wrong, text in ((len, "0-d tensor"), (list, "0-d tensor")):
        with pytest.raises(TypeError, match=text):
            wrong(torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(x)
    with pytest.raises(RuntimeError, match="no values is ambiguous"):
        bool(torch.zeros(0))
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "a" in x  # noqa: B015
    with pytest.raises(RuntimeError, match="3 elements cannot be converted to Scalar"):
        x.item()


def test_constructor():
    assert torch.Tensor(2, 3).shape == (2, 3) and torch.Tensor().shape == (0,)
    assert torch.Tensor([1, 2]).dtype is torch.float32
    x = torch.ones(2, dtype=torch.float64)
    y = torch.Tensor(x)
    y.add_(1)
    assert x.tolist() == [2.0, 2.0] and x._version == 1 and y.dtype is torch.float64
    for wrong in ("a", 2.5):
        with pytest.raises(TypeError, match="takes sizes"):
            torch.Tensor(wrong)
