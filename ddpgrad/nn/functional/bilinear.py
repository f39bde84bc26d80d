"""The bilinear form of two vectors."""

from __future__ import annotations

from ... import Tensor, matmul, permute, reshape, unsqueeze
from ...ops.elementwise.conversion import to, wide


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out[k] = input1 @ weight[k] @ input2 + bias[k], over (*, I), (*, J) and weight (K, I, J): (*, K)."""
    outputs, first, second = weight.shape
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    for name, x, width in (("input1", input1, first), ("input2", input2, second)):
        if x.shape[-1] != width:
            raise RuntimeError(
                f"bilinear(): {name} size does not match weight size: got {x.shape[-1]} but expected {width}"
            )
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {list(bias.shape)} but expected {[outputs]}"
        )
    kind = input1.dtype
    input1, input2, weight = wide(input1), wide(input2), wide(weight)
    table = reshape(permute(weight, 1, 0, 2), (first, outputs * second))
    left = reshape(matmul(input1, table), (*input1.shape[:-1], outputs, second))
    out = (left * unsqueeze(input2, -2)).sum(-1)
    return to(out if bias is None else out + wide(bias), kind)
