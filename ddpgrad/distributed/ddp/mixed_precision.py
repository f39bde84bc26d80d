"""`DistributedDataParallel(mixed_precision=...)`: forward and backward with copies of the parameters in another dtype.

In forward each parameter is cast, under autograd, and the cast one stands in the modules. So gradients come back through the
cast to the parameters themselves, in their own dtype, and buckets, hooks and optimizers know nothing of it. The cast ones stand
in the modules again while backward runs, where parts of the model may be computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...autograd import engine
from ...autograd.grad_mode import is_grad_enabled
from ...backend.dtype import DType
from ...core.tensor import Tensor
from ...nn.modules.registration import put
from ...nn.parameter import Parameter
from ...utils._pytree import tree_iter, tree_map_only
from .comm_hooks import GradBucket, average

if TYPE_CHECKING:
    from ...nn.modules.module import Module
    from .data_parallel import DistributedDataParallel


@dataclass
class _MixedPrecision:
    """The dtypes of floating-point tensors; None: their own.

    param_dtype: of parameters and of forward's arguments, and so of what is computed with them; outside forward and backward
    parameters have their own dtype. reduce_dtype: in which gradients travel, whose averages are in the parameters' own dtype
    again; None: `param_dtype`. buffer_dtype: of buffers, from the beginning and for good.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None


class LowPrecision:
    """Runs the module of `model` with its parameters cast, but for those that are each rank's own."""

    def __init__(self, model: DistributedDataParallel) -> None:
        policy = model.mixed_precision
        if not isinstance(policy, _MixedPrecision):
            raise TypeError(
                f"DistributedDataParallel: mixed_precision must be a _MixedPrecision, got {type(policy).__name__}"
            )
        if model.reducer.sparse:
            names = ", ".join(model.reducer.names[i] for i in sorted(model.reducer.sparse))
            raise NotImplementedError(
                f"DistributedDataParallel: mixed_precision casts dense gradients, and those of {names} are sparse; make these "
                "modules with sparse=False"
            )
        self.module, self.policy, self._group = model.module, policy, model.process_group
        self._stands = False  # whether cast parameters stand in the modules
        self._parameters = [p for _, p in model._shared_parameters() if p.is_floating_point()]
        self._places: dict[int, list[tuple[Module, str]]] = {id(p): [] for p in self._parameters}
        for part in self.module.modules():
            for attribute, p in part._parameters.items():
                if id(p) in self._places:
                    self._places[id(p)].append((part, attribute))
        for _, b in model._shared_buffers():
            if policy.buffer_dtype is not None and b.is_floating_point():
                b.data = b.to(policy.buffer_dtype)
        self.reduce_dtype = policy.reduce_dtype or policy.param_dtype
        if any(p.dtype != (self.reduce_dtype or p.dtype) for p in self._parameters):
            model.reducer.hook = self._average
        self.module.register_state_dict_pre_hook(self._restore)  # after a backward that raised

    def __getstate__(self) -> dict[str, Any]:
        """A copy does nothing: the hook of a copied module has it, and a copied model makes its own."""
        return {"_stands": False}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`module(*args, **kwargs)` in `param_dtype`."""
        dtype = self.policy.param_dtype
        if dtype is None:
            return self.module(*args, **kwargs)
        self._restore()
        args, kwargs = cast_floating((args, kwargs), dtype)
        copies = [_cast(p, dtype) for p in self._parameters]
        self._stand(copies)
        try:
            result = self.module(*args, **kwargs)
        finally:
            self._restore()
        if is_grad_enabled():
            for value in tree_iter(result):
                if isinstance(value, Tensor) and value.requires_grad:
                    value.register_hook(partial(self._backward, copies))
        return result

    def _backward(self, copies: list[Tensor], grad: Tensor) -> None:
        """The hook of what forward returned: backward comes to the module."""
        engine.queue_callback(self._restore, outermost=True)
        self._restore()
        self._stand(copies)

    def _stand(self, copies: list[Tensor]) -> None:
        for p in self._parameters:
            for module, attribute in self._places[id(p)]:
                if vars(module).get(attribute) is not p:
                    raise RuntimeError(
                        f"DistributedDataParallel: the parameter '{attribute}' of shape {list(p.shape)} was replaced by another "
                        "after the module was wrapped with mixed_precision. Change it in place: under no_grad with copy_(), or "
                        "by load_state_dict without assign=True"
                    )
        self._stands = True
        self._put(copies)

    def _restore(self, *args: Any) -> None:
        """Let the parameters themselves stand in the modules."""
        if self._stands:
            self._stands = False
            self._put(self._parameters)

    def _put(self, tensors: list[Tensor]) -> None:
        for p, tensor in zip(self._parameters, tensors, strict=True):
            for module, attribute in self._places[id(p)]:
                put(module, attribute, tensor)

    def _average(self, bucket: GradBucket) -> Any:
        """The hook of the reducer: gradients travel in `reduce_dtype`."""
        return average(self._group, bucket, bucket.buffer().to(self.reduce_dtype))


def cast_floating(values: Any, dtype: Any) -> Any:
    """`values`, in which floating-point tensors have `dtype`."""
    return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, values)


def _cast(parameter: Tensor, dtype: DType) -> Tensor:
    copy = parameter.to(dtype)
    if copy is not parameter:
        copy.__class__ = Parameter  # so that modules name it among theirs
    return copy
