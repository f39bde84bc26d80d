"""Lazy layers: the first input gives the number of input features, and then the layer is an ordinary one."""

from __future__ import annotations

from typing import Any, ClassVar

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


class LazyLayer(LazyModuleMixin):
    """A layer with a weight and perhaps a bias, whose attribute `_counted` the first input gives; until then it is 0."""

    _counted: ClassVar[str]

    def _forget(self, bias: bool, device: Any, dtype: Any) -> None:
        """Take back the parameters of a layer that was made without a size and a bias, until the first input."""
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Give the parameters their initial values anew, once they have shapes."""
        if getattr(self, self._counted) != 0 and not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def _take(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Give the parameters and buffers of these names shapes, where they have none, and initial values."""
        lazy = [name for name in shapes if is_lazy(getattr(self, name))]
        for name in lazy:
            getattr(self, name).materialize(shapes[name])
        if lazy:
            self.reset_parameters()


class LazyLinear(LazyLayer, Linear):
    """A `Linear` layer with as many input features as its first input has."""

    cls_to_become = Linear
    _counted = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self._forget(bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of features from `input` (*, in_features)."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self._take({"weight": (self.out_features, self.in_features), "bias": (self.out_features,)})
        elif self.in_features == 0:  # a state_dict has given the shapes
            self.in_features = self.weight.shape[-1]


class _LazyNormBase(LazyLayer, batchnorm._NormBase):
    """A layer of `batchnorm` with as many channels as its first input has."""

    _counted = "num_features"

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
            self._forget(bias, device, dtype)
        if self.track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=int, device=device)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels from `input`."""
        unbatched = issubclass(self.cls_to_become or Module, batchnorm._InstanceNorm) and (
            input.ndim == self._dims[0]
        )
        self.num_features = input.shape[0 if unbatched else 1]
        self._take(dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,)))


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
