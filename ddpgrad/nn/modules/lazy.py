"""Lazy layers: the first input gives the number of input features, and then the layer is an ordinary one."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ...ops.creation.factories import zeros
from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from . import batchnorm
from .linear import Linear
from .module import Module


class LazyModuleMixin(Module):
    """What lazy layers share: before the first forward, `initialize_parameters(*args)` is called.

    After it the layer is of the class `cls_to_become`.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or a buffer has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes, and initial values."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def _infer_parameters(self, module: Module, args: Any, kwargs: Any = None) -> None:
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._initialize_hook.remove()
        del self._initialize_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` layer with as many input features as its first input has."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, once they have shapes."""
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of features from `input` (*, in_features)."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            for parameter, shape in (
                (self.weight, (self.out_features, self.in_features)),
                (self.bias, (self.out_features,)),
            ):
                if isinstance(parameter, UninitializedParameter):
                    parameter.materialize(shape)
            self.reset_parameters()
        elif self.in_features == 0:  # a state_dict has given the shapes
            self.in_features = self.weight.shape[-1]


class _LazyNormBase(LazyModuleMixin, batchnorm._NormBase):
    """A layer of `batchnorm` with as many channels as its first input has."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if self.affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if self.track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=int, device=device)

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, statistics as before any batch, once there are channels."""
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels from `input`."""
        unbatched = issubclass(self.cls_to_become or Module, batchnorm._InstanceNorm) and (
            input.ndim == self._dims[0]
        )
        self.num_features = input.shape[0 if unbatched else 1]
        lazy = [t for t in (self.weight, self.bias, self.running_mean, self.running_var) if is_lazy(t)]
        for tensor in lazy:
            tensor.materialize((self.num_features,))
        if lazy:
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, batchnorm.BatchNorm1d):
    """A `BatchNorm1d` with as many channels as its first input has."""

    cls_to_become = batchnorm.BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, batchnorm.BatchNorm2d):
    """A `BatchNorm2d` with as many channels as its first input has."""

    cls_to_become = batchnorm.BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, batchnorm.BatchNorm3d):
    """A `BatchNorm3d` with as many channels as its first input has."""

    cls_to_become = batchnorm.BatchNorm3d


class LazyInstanceNorm1d(_LazyNormBase, batchnorm.InstanceNorm1d):
    """An `InstanceNorm1d` with as many channels as its first input has."""

    cls_to_become = batchnorm.InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, batchnorm.InstanceNorm2d):
    """An `InstanceNorm2d` with as many channels as its first input has."""

    cls_to_become = batchnorm.InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, batchnorm.InstanceNorm3d):
    """An `InstanceNorm3d` with as many channels as its first input has."""

    cls_to_become = batchnorm.InstanceNorm3d
