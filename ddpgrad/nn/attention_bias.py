"""`torch.nn.attention.bias`: causal masks of queries and keys of different numbers, as objects."""

from __future__ import annotations

import enum
import warnings
from typing import Any

from ..core.overrides import DisableTorchFunctionSubclass
from ..core.tensor import Tensor
from ..ops.creation.factories import ones

__all__ = ["causal_lower_right", "causal_upper_left", "CausalVariant", "CausalBias"]


class CausalVariant(enum.IntEnum):
    """Which corner the diagonal of a mask begins in."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask (queries, keys), True where a query sees a key, for `scaled_dot_product_attention`.

    What a function other than that makes of it is made of the mask.
    """

    _causal: tuple[CausalVariant, int, int]

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"CausalBias(): variant must be a CausalVariant, got {variant!r}")
        lower_right = variant is CausalVariant.LOWER_RIGHT
        if lower_right and seq_len_q > seq_len_kv:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                UserWarning,
                stacklevel=3,
            )
        mask = ones(seq_len_q, seq_len_kv, dtype=bool).tril(seq_len_kv - seq_len_q if lower_right else 0)
        bias: Any = Tensor._make_subclass(cls, mask)
        bias._causal = (variant, seq_len_q, seq_len_kv)
        return bias

    @property
    def variant(self) -> CausalVariant:
        return self._causal[0]

    @property
    def seq_len_q(self) -> int:
        return self._causal[1]

    @property
    def seq_len_kv(self) -> int:
        return self._causal[2]

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as an ordinary tensor."""
        with DisableTorchFunctionSubclass():
            mask: Any = self.as_subclass(Tensor)
        return mask if device is None else mask.to(device)

    def __repr__(self, **_: Any) -> str:
        return repr(self._materialize())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if getattr(func, "__name__", "") == "scaled_dot_product_attention" and (
            args[5] if len(args) > 5 else options.get("is_causal")
        ):
            raise ValueError("CausalBias should not be used with causal=True")
        like = next((v.device for v in args if isinstance(v, Tensor) and not isinstance(v, CausalBias)), None)

        def plain(value: Any) -> Any:
            return value._materialize(like) if isinstance(value, CausalBias) else value

        return func(*map(plain, args), **{name: plain(value) for name, value in options.items()})


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of `size` (queries, keys) by which query i sees keys 0 to i."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_pair(size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask of `size` (queries, keys) by which the last query sees all keys, and each one before it one key less."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_pair(size))


def _pair(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"causal masks only support 2D tensors, got {len(size)} sizes")
    return size[0], size[1]
