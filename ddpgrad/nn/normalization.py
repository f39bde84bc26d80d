"""Normalisation layers: over features, and over a batch."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from ..ops.creation import empty, ones, zeros
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class LayerNorm(Module):
    """The last dimensions, of shape `normalized_shape`, brought to mean 0 and variance 1, scaled and shifted.

    Source: https://arxiv.org/abs/1607.06450
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            values = Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class _BatchNorm(Module):
    """What the batch normalisations share; they differ in the number of dimensions.

    Source: https://arxiv.org/abs/1502.03167
    """

    _version = 2  # since 2 the state holds num_batches_tracked
    _dims: tuple[int, ...] = ()
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            values = Parameter(empty(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, values)
        tracked = track_running_stats
        self.register_buffer(
            "running_mean", zeros(num_features, device=device, dtype=dtype) if tracked else None
        )
        self.register_buffer(
            "running_var", ones(num_features, device=device, dtype=dtype) if tracked else None
        )
        self.register_buffer("num_batches_tracked", zeros((), device=device, dtype=int) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1, after no batches."""
        if (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        ):
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, statistics as before any batch."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self._dims:
            expected = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")
        track = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain average of all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or self.running_mean is None
        mean = self.running_mean if track or not use_batch else None
        var = self.running_var if track or not use_batch else None
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, momentum, self.eps)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + "num_batches_tracked"
        if (
            local_metadata.get("version", self._version) < 2
            and self.track_running_stats
            and key not in state_dict
        ):
            assert self.num_batches_tracked is not None
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Channels of (N, C) or (N, C, L) brought to mean 0 and variance 1 over the batch; in eval, by running statistics."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Channels of images (N, C, H, W) brought to mean 0 and variance 1 over the batch; in eval, by running statistics."""

    _dims = (4,)
