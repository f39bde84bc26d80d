"""Normalisation by statistics of channels, over a batch or over each instance, with running averages."""

from __future__ import annotations

from typing import Any

from ...core.errors import warn_program
from ...core.face import also_in
from ...core.tensor import Tensor
from ...ops.creation.factories import ones, zeros
from .. import functional as F
from .normalization import _Affine


class _NormBase(_Affine):
    """Channels, their scale and shift, and the running averages of their statistics."""

    _version = 2  # since 2 the state holds num_batches_tracked
    _dims: tuple[int, ...] = ()  # of the inputs that the layer takes
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
        self._register(num_features, affine, affine and bias, device, dtype)
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
        if self.track_running_stats:
            assert self.running_mean is not None and self.running_var is not None
            assert self.num_batches_tracked is not None
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, statistics as before any batch."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self._dims:
            expected = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")

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
        old = local_metadata.get("version") is None or local_metadata["version"] < 2
        if old and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            state_dict[key] = zeros((), dtype=int) if own is None or own.is_meta else own
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """What the batch normalisations share; they differ in the number of dimensions.

    Source: https://arxiv.org/abs/1502.03167
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        track = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain average of all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        mean = self.running_mean if track or not use_batch else None
        var = self.running_var if track or not use_batch else None
        return self._normalize(input, mean, var, use_batch, momentum)

    def _normalize(
        self, input: Tensor, mean: Tensor | None, var: Tensor | None, use_batch: bool, momentum: float
    ) -> Tensor:
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Channels of (N, C) or (N, C, L) brought to mean 0 and variance 1 over the batch; in eval, by running statistics."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Channels of images (N, C, H, W) brought to mean 0 and variance 1 over the batch; in eval, by running statistics."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Channels of volumes (N, C, D, H, W) brought to mean 0 and variance 1 over the batch; in eval, by running statistics."""

    _dims = (5,)


class _InstanceNorm(_NormBase):
    """What the instance normalisations share. Source: https://arxiv.org/abs/1607.08022"""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        unbatched = input.ndim == self._dims[0]
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features:
            dim = 0 if unbatched else 1
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {channels}."
                )
            warn_program(
                f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in "
                "num_features, which is not used because affine=False"
            )
        out = F.instance_norm(
            input.unsqueeze(0) if unbatched else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each instance of (N, C, L) or (C, L) brought to mean 0 and variance 1."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each instance of (N, C, H, W) or (C, H, W) brought to mean 0 and variance 1."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each instance of (N, C, D, H, W) or (C, D, H, W) brought to mean 0 and variance 1."""

    _dims = (4, 5)


__getattr__ = also_in(__package__ or "", "lazy", "sync_batchnorm")
