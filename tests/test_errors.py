"""Golden texts of common mistakes: PyTorch's kind of exception, and a message that says what to do."""

from collections.abc import Callable

import pytest

import ddpgrad as torch
from ddpgrad import errors, nn


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def backward_twice() -> None:
    loss = (leaf() ** 2).sum()
    loss.backward()
    loss.backward()


def needed_value_changed() -> None:
    x = leaf()
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def parameter_changed_before_backward() -> None:
    x, w = leaf(), leaf()
    loss = (x * w).sum()
    with torch.no_grad():
        w.zero_()
    loss.backward()


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "matmul of wrong shapes": (
        lambda: torch.ones(2, 3) @ torch.ones(2, 3),
        RuntimeError,
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3): the first has 3 columns, the second 2 rows",
    ),
    "matmul of different dtypes": (
        lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64),
        RuntimeError,
        "expected m1 and m2 to have the same dtype, but got: float != double; convert one with Tensor.to(dtype)",
    ),
    "matmul of batches that differ": (
        lambda: torch.ones(2, 3, 4) @ torch.ones(5, 4, 3),
        RuntimeError,
        "matmul([2, 3, 4] float32, [5, 4, 3] float32): ",
    ),
    "linear layer of another width": (
        lambda: nn.Linear(5, 4)(torch.ones(2, 3)),
        RuntimeError,
        "linear(): mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4): the input [2, 3] must end in in_features=5",
    ),
    "addition of wrong shapes": (
        lambda: torch.ones(2, 3) + torch.ones(4),
        RuntimeError,
        "add([2, 3] float32, [4] float32): The size of tensor a (3) must match the size of tensor b (4) at "
        "non-singleton dimension 1",
    ),
    "cat of wrong shapes": (
        lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4)]),
        RuntimeError,
        "cat([2, 3] float32, [2, 4] float32): Sizes of tensors must match except in dimension 0. Expected size 3 but "
        "got size 4 for tensor number 1 in the list.",
    ),
    "reshape to another size": (
        lambda: torch.ones(2, 3).reshape(4, -1),
        RuntimeError,
        "reshape(): shape '[4, -1]' is invalid for input of size 6",
    ),
    "view that needs a copy": (
        lambda: torch.ones(2, 3).t().view(6),
        RuntimeError,
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
        "contiguous subspaces): [3, 2] with strides (1, 3) as [6]. Use .reshape(...) instead.",
    ),
    "index out of range": (
        lambda: torch.ones(2, 3)[0, 7],
        IndexError,
        "getitem([2, 3] float32): index 7 is out of bounds for dimension 1 with size 3",
    ),
    "number of a class that there is not": (
        lambda: nn.CrossEntropyLoss()(torch.ones(2, 3), torch.tensor([1, 5])),
        IndexError,
        "cross_entropy([2, 3] float32): Target 5 is out of bounds: there are 3 classes.",
    ),
    "dimension out of range": (
        lambda: torch.ones(2, 3).transpose(0, 2),
        IndexError,
        "transpose(): Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "mean of integers": (
        lambda: torch.arange(3).mean(),
        RuntimeError,
        "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
        "int64. Use x.float().mean() or mean(dtype=torch.float32).",
    ),
    "gradient of integers": (
        lambda: torch.tensor([1, 2], requires_grad=True),
        RuntimeError,
        "only Tensors of floating point and complex dtype can require gradients, got torch.int64",
    ),
    "backward twice": (
        backward_twice,
        errors.GraphError,
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed): PowBackward0 has freed what it saved. Specify retain_graph=True in the first call of backward() or "
        "autograd.grad().",
    ),
    "backward from several elements": (
        lambda: (leaf() * 2).backward(),
        errors.GraphError,
        "grad can be implicitly created only for scalar outputs; this one has shape [2]. Pass gradient=, or reduce it "
        "with .sum() or .mean() first.",
    ),
    "backward without history": (
        lambda: torch.ones(2).sum().backward(),
        errors.GraphError,
        "element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    "gradient of another shape": (
        lambda: (leaf() * 2).backward(torch.ones(3)),
        errors.GraphError,
        "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).",
    ),
    "needed value changed": (
        needed_value_changed,
        errors.GraphError,
        "one of the variables needed for gradient computation has been modified by an inplace operation: the output of "
        "exp (ExpBackward0, output shape [2]) is at version 1; expected version 0 instead. Write the operation out of "
        "place, or clone() first.",
    ),
    "parameter changed before backward": (
        parameter_changed_before_backward,
        errors.GraphError,
        "one of the variables needed for gradient computation has been modified by an inplace operation: other of mul "
        "(MulBackward0, output shape [2]) is at version 1; expected version 0 instead. Write the operation out of "
        "place, or clone() first.",
    ),
    "leaf changed in place": (
        lambda: leaf().add_(1),
        RuntimeError,
        "add_(): a leaf Variable that requires grad is being used in an in-place operation. Do it under "
        "torch.no_grad(), or out of place.",
    ),
    "numpy of what requires grad": (
        lambda: leaf().numpy(),
        RuntimeError,
        "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
    ),
    "unknown device": (
        lambda: torch.ones(2, device="gpu"),
        errors.DeviceError,
        "unknown device 'gpu': expected one of cpu, cuda, meta (or 'cuda:0' …)",
    ),
    "operand that is no number": (
        lambda: torch.ones(2) + "a",
        TypeError,
        "add(): expected a number or a Tensor, got str",
    ),
    "minus of a mask": (
        lambda: -torch.tensor([True]),
        RuntimeError,
        "neg([1] bool): the `-` operator with a bool tensor is not supported. If you are trying to invert a mask, use "
        "the `~` or `logical_not()` operator instead.",
    ),
    "nested lists of unequal lengths": (
        lambda: torch.tensor([[1, 2], [3]]),
        ValueError,
        "expected sequence of length 2 at dim 1 (got 1)",
    ),
    "stack of different shapes": (
        lambda: torch.stack([torch.ones(2), torch.ones(3)]),
        RuntimeError,
        "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1",
    ),
    "row of a table that there is not": (
        lambda: nn.functional.embedding(torch.tensor([4]), torch.ones(4, 2)),
        IndexError,
        "embedding(): index out of range in self: 4 with a table of 4 rows",
    ),
    "images of other channels": (
        lambda: nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 2, 3, 3)),
        RuntimeError,
        "Given groups=1, weight of size [4, 2, 3, 3], expected input[1, 3, 8, 8] to have 2 channels, but got 3 "
        "channels instead",
    ),
    "number of several elements": (
        lambda: torch.ones(2).item(),
        RuntimeError,
        "a Tensor with 2 elements cannot be converted to Scalar",
    ),
    "batch norm of one value": (
        lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)),
        ValueError,
        "Expected more than 1 value per channel when training, got input size torch.Size([1, 3])",
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
    "unknown argument": (
        lambda: torch.ones(2).sum(dims=0),
        TypeError,
        "sum() got an unexpected or repeated argument 'dims'; it has (input, dim, keepdim, dtype)",
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
