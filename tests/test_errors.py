"""Golden texts of mistakes: PyTorch's kind of exception, and what to do. The commonest are those of `docs/errors.md`."""

import contextlib
import gc
import weakref
from collections.abc import Callable

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import errors, nn


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def parameter_changed_before_backward() -> None:
    x, w = leaf(), leaf()
    loss = (x * w).sum()
    with torch.no_grad():
        w.zero_()
    loss.backward()


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "matmul of batches that differ": (
        lambda: torch.ones(2, 3, 4) @ torch.ones(5, 4, 3),
        RuntimeError,
        "matmul([2, 3, 4] float32, [5, 4, 3] float32): ",
    ),
    "gradient of integers": (
        lambda: torch.tensor([1, 2], requires_grad=True),
        RuntimeError,
        "only Tensors of floating point and complex dtype can require gradients, got torch.int64",
    ),
    "gradient of another shape": (
        lambda: (leaf() * 2).backward(torch.ones(3)),
        errors.GraphError,
        "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).",
    ),
    "parameter changed before backward": (
        parameter_changed_before_backward,
        errors.GraphError,
        "one of the variables needed for gradient computation has been modified by an inplace operation: other of mul "
        "(MulBackward0, output shape [2]) is at version 1; expected version 0 instead. Write the operation out of "
        "place, or clone() first.",
    ),
    "unknown device": (
        lambda: torch.ones(2, device="gpu"),
        errors.DeviceError,
        "Expected one of cpu, cuda, meta device type at start of device string: gpu",
    ),
    "operand that is no number": (
        lambda: torch.add(torch.ones(2), "a"),
        TypeError,
        "add(): expected a number or a Tensor, got str",
    ),
    "minus of a mask": (
        lambda: -torch.tensor([True]),
        RuntimeError,
        "neg([1] bool): Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
        "the `~` or `logical_not()` operator instead.",
    ),
    "nested lists of unequal lengths": (
        lambda: torch.tensor([[1, 2], [3]]),
        ValueError,
        "expected sequence of length 2 at dim 1 (got 1)",
    ),
    "state of a model of another size": (
        lambda: nn.Linear(2, 3).load_state_dict(nn.Linear(2, 4).state_dict()),
        RuntimeError,
        "Error(s) in loading state_dict for Linear:\n"
        "\tsize mismatch for weight: copying a param with shape torch.Size([4, 2]) from checkpoint, the shape in "
        "current model is torch.Size([3, 2]).\n"
        "\tsize mismatch for bias: copying a param with shape torch.Size([4]) from checkpoint, the shape in current "
        "model is torch.Size([3]).",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message(name: str):
    mistake, kind, text = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    message = str(caught.value)
    assert message == text or (text.endswith(": ") and message.startswith(text))


def test_exceptions_are_pytorchs_kinds():
    assert issubclass(errors.DdpgradError, RuntimeError)
    assert issubclass(errors.KernelMissingError, NotImplementedError)
    for name in ("DeviceError", "GraphError", "DistributedError", "CheckpointError", "LaunchError"):
        assert issubclass(getattr(errors, name), errors.DdpgradError)
        assert f"+-- {name}" in (errors.__doc__ or "")


@pytest.mark.parametrize("call", [lambda x: F.linear(x, torch.ones(2, 9)), lambda x: x @ torch.ones(9)])
def test_an_error_that_is_caught_keeps_no_tensor(call):
    x = torch.ones(3, 4, requires_grad=True).exp()
    kept = weakref.ref(x)
    gc.disable()  # memory is to be there at once, as for a program that tries a smaller batch
    try:
        with contextlib.suppress(RuntimeError):
            call(x)
        del x
        assert kept() is None
    finally:
        gc.enable()


WITHOUT_MEMORY: dict[str, Callable[[], object]] = {
    "made": lambda: torch.zeros(2**60),
    "drawn": lambda: torch.randn(2**60),
    "an op": lambda: torch.ones(1).expand(2**50) + 1,
    "backward": lambda: torch.ones(1).expand(2**50).requires_grad_()[0].backward(),
}


@pytest.mark.parametrize("call", WITHOUT_MEMORY.values(), ids=WITHOUT_MEMORY.keys())
def test_too_little_memory_of_the_host_is_a_runtime_error(call):
    """Programs that look for a batch that fits catch it, and look for these words."""
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator: can't allocate memory") as caught:
        call()
    assert isinstance(caught.value, MemoryError)
