"""What the tests of `onnx.export` share: a model is exported, and onnxruntime computes what it computes."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


class Call(nn.Module):
    """A model that is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def flat(value: Any) -> list[torch.Tensor]:
    return (
        [value]
        if isinstance(value, torch.Tensor)
        else [t for part in value if part is not None for t in flat(part)]
    )


def check(model: nn.Module, args: tuple[Any, ...], others: tuple[Any, ...] = (), **options: Any) -> None:
    """The exported model gives the outputs of `model` for `args`, and for inputs of other sizes."""
    file = io.BytesIO()
    torch.onnx.export(model, args, file, **options)
    model.eval()
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for given in (args, others) if others else (args,):
        names = [i.name for i in session.get_inputs()]
        found = session.run(None, {name: x.numpy() for name, x in zip(names, given, strict=True)})
        with torch.no_grad():
            expected = flat(model(*given))
        for a, b in zip(found, expected, strict=True):
            assert a.shape == tuple(b.shape) and a.dtype == b.numpy().dtype
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
