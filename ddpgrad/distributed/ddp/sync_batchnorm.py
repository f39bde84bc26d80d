"""Batch normalisation by the statistics of all ranks' batches together."""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import no_grad
from ...backend.dtype import float32
from ...core.modes import mode
from ...core.tensor import Tensor
from ...nn.modules.batchnorm import _BatchNorm
from ...nn.modules.module import Module
from ...ops.creation.factories import full
from ...ops.shape.stacking import cat, stack


class SyncBatchNorm(_BatchNorm):
    """Channels of (N, C, ...) brought to mean 0 and variance 1 over the batches of all ranks; in eval, by running statistics.

    process_group: whose ranks; None: all. On one rank, and without a process group, it is the
    batch normalisation of the input's dimensions. Forward and backward take one collective each. A batch that stands in for
    none (`docs/data.md`) is brought to the others' statistics, and has no part in them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    def _normalize(
        self, input: Tensor, mean: Tensor | None, var: Tensor | None, use_batch: bool, momentum: float
    ) -> Tensor:
        from ... import distributed

        # As PyTorch: statistics are exchanged in training only, so that ranks may evaluate by themselves.
        if not (use_batch and self.training and distributed.is_initialized()):
            return super()._normalize(input, mean, var, use_batch, momentum)
        group = distributed.process_group.resolve(self.process_group)
        if group.size() == 1:
            return super()._normalize(input, mean, var, use_batch, momentum)
        wide = input.float() if input.dtype.itemsize < float32.itemsize else input
        dims = [0, *range(2, input.ndim)]
        count = input.numel() // input.shape[1]
        own_mean = wide.sum(dims) / max(count, 1)
        own_var = (wide - _spread(own_mean, input)).square().sum(dims) / max(count, 1)
        counts = 0.0 if mode.stand_in else float(count)
        own = cat([own_mean, own_var, full((1,), counts, dtype=wide.dtype, device=wide.device)])
        rows = stack(distributed.nn.functional.all_gather(own, group))
        channels = self.num_features
        means, vars_, weights = rows[:, :channels], rows[:, channels:-1], rows[:, -1:].detach()
        total = float(weights.sum())
        if total < 2:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {list(input.shape)} on each rank"
            )
        batch_mean = (means * weights).sum(0) / total
        # The variance of the joined batch: that within the ranks' batches, and that between their means.
        batch_var = ((vars_ + (means - batch_mean).square()) * weights).sum(0) / total
        if mean is not None and var is not None:
            with no_grad():
                mean.lerp_(batch_mean.detach().to(mean.dtype), momentum)
                var.lerp_((batch_var.detach() * (total / (total - 1))).to(var.dtype), momentum)
        out = (wide - _spread(batch_mean, input)) * _spread((batch_var + self.eps).rsqrt(), input)
        if self.weight is not None:
            out = out * _spread(self.weight, input)
        if self.bias is not None:
            out = out + _spread(self.bias, input)
        return out.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every batch normalisation in it replaced; parameters and buffers stay the same objects."""
        if isinstance(module, _BatchNorm):
            converted: Module = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            assert isinstance(converted, SyncBatchNorm)
            converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
            return converted
        for name, child in module.named_children():
            replaced = cls.convert_sync_batchnorm(child, process_group)
            if replaced is not child:
                module.add_module(name, replaced)
        return module


def _spread(channels: Tensor, like: Tensor) -> Tensor:
    """One number a channel, in a shape that broadcasts to that of `like`."""
    return channels.view(1, -1, *[1] * (like.ndim - 2))
