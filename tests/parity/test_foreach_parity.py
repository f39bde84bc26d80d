"""`torch._foreach_*` against PyTorch's: every form of its arguments, in place and not."""

from typing import Any

import pytest
import torch

import ddpgrad

FORMS = {
    "alone": lambda t, two: (),
    "number": lambda t, two: (2,),
    "numbers": lambda t, two: ([2.0, 3.0],),
    "tensor": lambda t, two: (t.tensor(2.0),),
    "list": lambda t, two: (two,),
    "list, number": lambda t, two: (two, 2),
    "lists": lambda t, two: (two, two),
    "lists, number": lambda t, two: (two, two, 2.0),
    "lists, numbers": lambda t, two: (two, two, [2.0, 3.0]),
    "lists, tensor": lambda t, two: (two, two, t.tensor([2.0, 3.0])),
    "too short": lambda t, two: (two[:1],),
}


def result(library: Any, name: str, form: str) -> Any:
    """The results and what the arguments have become, or the type of the error."""
    tensors = [library.tensor([0.25, 0.5]), library.tensor([[0.75]])]
    two = [tensor.clone() for tensor in tensors]
    try:
        out = getattr(library, name)(tensors, *FORMS[form](library, two))
    except (RuntimeError, TypeError) as error:
        return type(error)
    lists = [out, tensors] if isinstance(out, (list, tuple)) else [tensors]
    return [[tensor.tolist() for tensor in part] for part in lists]


@pytest.mark.parametrize("name", [name for name in dir(torch) if name.startswith("_foreach_")])
def test_of_lists(name: str) -> None:
    for form in FORMS:
        expected = result(torch, name, form)
        if expected is not TypeError:  # methods here take arguments where PyTorch wants none
            found = result(ddpgrad, name, form)
            assert alike(found, expected), f"{form}: PyTorch {expected}, here {found}"


def alike(one: Any, other: Any) -> bool:
    if isinstance(other, list):
        return isinstance(one, list) and len(one) == len(other) and all(map(alike, one, other))
    return one is other if isinstance(other, type) else one == pytest.approx(other, rel=1e-6, nan_ok=True)
