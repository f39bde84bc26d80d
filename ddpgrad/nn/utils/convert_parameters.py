"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ... import Tensor, cat, reshape


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements, one parameter after the other, as a new 1-D tensor."""
    return cat([reshape(parameter, (-1,)) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy consecutive parts of `vec` into the parameters; `ValueError` when the lengths do not agree."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    total = sum(parameter.numel() for parameter in parameters)
    if vec.numel() != total:
        raise ValueError(f"the vector has {vec.numel()} elements, the parameters have {total}")
    start = 0
    for parameter in parameters:
        part = vec[start : start + parameter.numel()]
        parameter.data.copy_(reshape(part.detach(), tuple(parameter.shape)))
        parameter._versions[0] += 1
        start += parameter.numel()
