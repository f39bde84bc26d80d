"""Rules of matrix products, layers and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import NotMapped
from .array import MappedArray, aligned
from .rules import RULES, Rule, each, ndim_of, rule, total

Array = Any


@rule("matmul")
def matmul(H: Any, input: Any, other: Any) -> Array:
    """`input @ other` of all examples."""
    if other.__class__ is not MappedArray:
        if other.ndim == 1:
            return H.matmul(input.whole, other)
        if other.ndim == 2:
            rows = H.matmul(input.whole.reshape(-1, input.shape[-1]), other)  # one large product
            return rows.reshape((input.count, *input.shape[:-1], other.shape[-1]))
    elif input.__class__ is not MappedArray and input.ndim == 2 and other.ndim == 1:
        return H.matmul(other.whole, input.swapaxes(0, 1))
    left, right = _matrices(input, other)
    out = H.matmul(*aligned((left, right)))
    if other.ndim == 1:
        out = out[..., 0]
    return out if input.ndim > 1 else out[..., 0] if other.ndim == 1 else out[..., 0, :]


def _matrices(input: Any, other: Any) -> tuple[Any, Any]:
    """Vectors as matrices of one row, or of one column."""
    if input.ndim == 1:
        input = _with(input, (1, input.shape[0]))
    if other.ndim == 1:
        other = _with(other, (other.shape[0], 1))
    return input, other


def _with(array: Any, shape: tuple[int, ...]) -> Any:
    if array.__class__ is MappedArray:
        return MappedArray(array.whole.reshape((array.count, *shape)))
    return array.reshape(shape)


@rule("linear")
def linear(H: Any, input: Any, weight: Any, bias: Any = None) -> Array:
    """`input @ weight.T + bias` of all examples."""
    if weight.__class__ is not MappedArray and bias.__class__ is not MappedArray:
        return H.linear(input.whole, weight, bias)
    if weight.__class__ is not MappedArray or weight.ndim != 2 or (bias is not None and bias.itemsize == 2):
        raise NotMapped  # also where product and sum are rounded once
    out = matmul(H, input, MappedArray(weight.whole.swapaxes(1, 2)))
    return out if bias is None else H.add(*aligned((MappedArray(out), bias)))


@total("matmul")
def _sum_of_products(H: Any, input: Any, other: Any) -> tuple[tuple[int, ...], Callable[[], Array]]:
    """One large product of matrices side by side: gradients of what all examples share."""
    if not (input.__class__ is other.__class__ is MappedArray and input.ndim == other.ndim == 2):
        raise NotMapped

    def product() -> Array:
        columns = input.whole.swapaxes(1, 2).reshape(-1, input.shape[0])
        return H.matmul(columns.swapaxes(0, 1), other.whole.reshape(-1, other.shape[1]))

    return (input.shape[0], other.shape[1]), product


@rule("convolution_weight")
def _convolution_weight(
    H: Any, grad: Any, input: Any, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """A product of gradients and patches of the images."""
    if groups != 1 or grad.ndim != 4:
        raise NotMapped
    kernel = (shape[2:], dilation, padding, stride)
    if input.__class__ is MappedArray:
        patches = H.im2col(_images(input), *kernel)
        patches = MappedArray(patches.reshape((input.count, input.shape[0], *patches.shape[1:])))
    else:
        patches = H.im2col(input, *kernel)
    rows, columns = grad.swapaxes(0, 1), patches.transpose(0, 2, 1)
    rows = rows.reshape(shape[0], -1)
    out = matmul(H, rows, columns.reshape(rows.shape[1], -1))
    return out.reshape(-1, *shape)


@total("convolution_weight")
def _sum_of_convolutions(H: Any, grad: Any, input: Any, shape: Any, *options: Any) -> Any:
    if grad.__class__ is not MappedArray or input.__class__ is not MappedArray:
        raise NotMapped
    return tuple(shape), lambda: H.convolution_weight(_images(grad), _images(input), shape, *options)


def _images(array: MappedArray) -> Array:
    """The images (N, ...) of all examples."""
    return array.whole.reshape((array.count * array.shape[0], *array.shape[1:]))


def _leading(name: str, arrays: int, alike: int = 1) -> Rule:
    """The rule of a kernel that lets dimensions lead.

    arrays: how many arguments are arrays. alike: of so many of them, which have as many dimensions each, all are mapped, and
    no other is.
    """

    def made(H: Any, *args: Any) -> Any:
        first, others = args[:alike], args[alike:arrays]
        if any(a.__class__ is not MappedArray or a.ndim != first[0].ndim for a in first):
            raise NotMapped
        if any(a.__class__ is MappedArray or ndim_of(a) > first[0].ndim for a in others):
            raise NotMapped
        return getattr(H, name)(*[a.whole for a in first], *args[alike:])

    return made


RULES |= {name: _leading(name, 1) for name in (
    "cholesky_factor", "complete_qr", "det", "eig_factor", "eigh_factor", "eigvals", "eigvalsh", "inv", "lu_factor", "matrix_exp",
    "qr_factor", "slogdet_pair", "svd_factor", "svdvals", "to_contiguous",
)}  # fmt: skip
RULES |= {
    "layer_norm": _leading("layer_norm", 3),
    "rms_norm": _leading("rms_norm", 2),
    "attention": _leading("attention", 4, 3),
}


def _joined(name: str) -> Rule:
    """The rule of a kernel on images (N, ...) whose other arguments are plain: examples are more images."""

    def made(H: Any, input: Any, *others: Any) -> Any:
        if (
            input.__class__ is not MappedArray
            or not input.ndim
            or any(o.__class__ is MappedArray for o in others)
        ):
            raise NotMapped
        count, n = input.count, input.shape[0]
        if name == "convolution_input":
            weight, shape, *options = others
            others = (weight, (count * shape[0], *shape[1:]), *options)
        out = getattr(H, name)(_images(input), *others)
        if isinstance(out, tuple):
            raise NotMapped
        return out.reshape((count, n, *out.shape[1:]))

    return made


RULES |= {name: _joined(name) for name in ("col2im", "convolution", "convolution_input", "im2col")}


# -- cross entropy: rows of all examples are so many rows, of which each example's are then added up ----------------


def _rows(input: Any, target: Any, weight: Any) -> tuple[Array, Array]:
    if input.__class__ is not MappedArray or weight.__class__ is MappedArray:
        raise NotMapped
    scores, targets = each((input, target), input.count)
    return scores.reshape(-1, input.shape[1]), targets.reshape(-1)


def _counted(H: Any, targets: Array, weight: Any, ignore_index: int, like: Array, count: int) -> Array:
    """What the weights of each example's targets add up to, (count, 1)."""
    kept = targets != ignore_index
    if weight is not None:
        kept = kept * H.index_select(weight, 0, targets * kept)
    return H.sum(kept.reshape(count, -1), 1, True).astype(like.dtype)


@rule("cross_entropy_rows")
def _cross_entropy(
    H: Any, input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> Any:
    scores, targets = _rows(input, target, weight)
    losses, sums = H.cross_entropy_rows(scores, targets, weight, ignore_index, label_smoothing, "none")
    losses = losses.reshape(input.count, -1)
    if sums is not None:
        sums = sums.reshape(2, input.count, -1).swapaxes(0, 1)
    if reduction == "none":
        return losses, sums
    total = H.sum(losses, 1)
    if reduction == "mean":
        total = total / _counted(H, targets, weight, ignore_index, losses, input.count)[:, 0]
    return total, sums


@rule("cross_entropy_backward")
def _cross_entropy_backward(
    H: Any, g: Any, input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str, sums: Any
) -> Any:  # fmt: skip
    scores, targets = _rows(input, target, weight)
    (slopes,) = each((g,), input.count)
    if reduction != "none":
        slopes = slopes.reshape(-1, 1)
        if reduction == "mean":
            counted = _counted(H, targets, weight, ignore_index, scores, input.count)
            slopes = H.where(counted == 0, H.full_like(counted, 0), slopes / counted)  # where all are ignored
        slopes = H.clone(H.expand(slopes, (input.count, input.shape[0])))
    if sums is not None:
        if sums.__class__ is not MappedArray:
            raise NotMapped
        sums = sums.whole.swapaxes(0, 1).reshape(2, -1)
    grads = H.cross_entropy_backward(
        slopes.reshape(-1), scores, targets, weight, ignore_index, label_smoothing, "none", sums
    )
    return grads.reshape(input.count, *input.shape)
