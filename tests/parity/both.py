"""Programs and modules run by PyTorch and by ddpgrad, from one seed, and what comes of them compared."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from op_db_values import Converter, compare, leaves

import ddpgrad

LIBRARIES = (torch, ddpgrad)


def agree(program: Callable[[Any], Any], tolerance: float = 1e-6, seed: int = 0) -> Any:
    """Fail where `program(library)` differs: tensors by more than `tolerance` times the largest element. Returns ddpgrad's."""
    results = []
    for library in LIBRARIES:
        library.manual_seed(seed)
        results.append(program(library))
    compare("result", results[1], results[0], tolerance)
    return results[1]


def check(
    make: Callable[[Any], Any],
    inputs: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    *,
    call: Callable[..., Any] | None = None,
    training: bool = True,
    dtype: str = "float64",
    orders: int = 2,
    tolerance: float | None = None,
) -> None:
    """Fail where a module differs, which `make(nn)` makes: text, state, results, gradients, and theirs in float64.

    inputs, named: what it is called with; arrays become tensors, and floats get gradients.
    call: what is computed, of the library, the module and the inputs.
    """
    given = [_leaf(value, getattr(torch, dtype)) for value in inputs]
    convert = Converter()
    expected = run(torch, make, (given, named or {}), call, training, dtype, orders)
    found = run(ddpgrad, make, convert((given, dict(named or {}))), call, training, dtype, orders)
    for what, values in expected.items():
        compare(what, found[what], values, tolerance or (1e-6 if dtype == "float64" else 1e-4))


def _leaf(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.tensor(value)
    return tensor.to(dtype).requires_grad_() if tensor.is_floating_point() else tensor


def run(
    library: Any,
    make: Callable[[Any], Any],
    given: Any,
    call: Callable[..., Any] | None = None,
    training: bool = True,
    dtype: str = "float64",
    orders: int = 2,
    device: str = "cpu",
) -> dict[str, Any]:
    """Everything that can be compared, of a forward, a backward, and in float64 a second one.

    Parameters are drawn in float32.
    """
    args, kwargs = given
    library.manual_seed(3)
    with library.device(device):
        module = make(library.nn)
    first = repr(module)
    module = module.to(device, getattr(library, dtype)).train(training)
    library.manual_seed(4)
    result = module(*args, **kwargs) if call is None else call(library, module, *args)
    outputs = list(leaves(result, library.Tensor))
    inputs = [t for t in (*leaves((args, kwargs), library.Tensor), *module.parameters()) if t.requires_grad]
    found = {
        "repr": [first, repr(module)], "names": list(module.state_dict()), "outputs": outputs,
        "state": list(module.state_dict().values()),
    }  # fmt: skip
    for order in ("gradients", "second gradients")[: orders if dtype == "float64" else 1]:
        parts = [(o * (o + _weights(library, o))).sum() for o in outputs if o.requires_grad]
        if not parts:
            break
        try:
            outputs = library.autograd.grad(sum(parts), inputs, create_graph=True, materialize_grads=True)
        except RuntimeError as error:  # some have no second one
            if not re.search("is not implemented|differentiate twice|functions with out=", str(error)):
                raise
            break
        found[order] = list(outputs)
    return found


def _weights(library: Any, of: Any) -> Any:
    """What is added to an output before both are multiplied, and the sum is differentiated."""
    return library.arange(of.numel(), dtype=of.dtype, device=of.device).cos().reshape(of.shape)
