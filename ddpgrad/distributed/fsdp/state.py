"""What is known of a module that was given to `fully_shard`, and what happens around its forward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...autograd import engine
from ...autograd.grad_mode import is_grad_enabled
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...utils._pytree import tree_iter
from ..ddp.mixed_precision import cast_floating
from ..device_mesh import DeviceMesh
from .context import Context
from .group import Group
from .policies import MixedPrecisionPolicy


class State:
    """groups: of the module's own parameters, one for each dtype. mesh, reshards, nonfinite: as `fully_shard` was told."""

    def __init__(
        self,
        module: Module,
        groups: list[Group],
        policy: MixedPrecisionPolicy,
        mesh: DeviceMesh,
        reshards: bool | None,
        nonfinite: str | None,
    ) -> None:
        self.module, self.groups, self.policy, self.reshards = module, groups, policy, reshards
        self.mesh, self.nonfinite = mesh, nonfinite
        self.context: Context | None = None

    def listen(self) -> None:
        """Register the hooks around forward and the state_dict."""
        module = self.module
        module.register_forward_pre_hook(self.before, prepend=True, with_kwargs=True)
        module.register_forward_hook(self.after, always_call=True)
        module.register_state_dict_pre_hook(self._sharded)
        module.register_load_state_dict_pre_hook(self._sharded)

    def set_reshard_after_forward(self, reshards: bool) -> None:
        self.reshards = reshards
        for group in self.groups:
            group.reshards = reshards

    def ready(self) -> Context:
        """The context; made when a module is used that lies below no other that was used before."""
        if self.context is None:
            states = dict(_named_states_below(self.module))
            mine = self.mesh._flatten().get_group()
            for prefix, state in states.items():
                if state.mesh._flatten().get_group().ranks != mine.ranks:
                    raise ValueError(
                        f"fully_shard: '{prefix}' lies on {state.mesh}, and the module around it on {self.mesh}: the parts of a "
                        "model lie on the same ranks"
                    )
                if state.nonfinite not in (None, self.nonfinite):
                    raise ValueError(
                        f"fully_shard: '{prefix}' has nonfinite_gradients={state.nonfinite!r}, and the module around it "
                        f"{self.nonfinite!r}: pass it to the outermost call, which decides"
                    )
                for group in state.groups:
                    group.name_below(prefix)
                    group.reshards = state is not self if state.reshards is None else state.reshards
            groups = [group for state in states.values() for group in state.groups]
            context = Context(self, groups, mine.communicator, self.nonfinite)
            for state in states.values():
                state.context = context
        return self.context  # type: ignore[return-value]

    def before(self, module: Module, args: Any, kwargs: Any) -> Any:
        """The hook before forward."""
        context = self.ready()
        if context.root is self:
            context.begin_forward()
        for group in self.groups:
            context.uses(group)
            group.gather()
        dtype = self.policy.param_dtype
        if dtype is not None and self.policy.cast_forward_inputs:
            args, kwargs = cast_floating((args, kwargs), dtype)
        return args, kwargs

    def after(self, module: Module, args: Any, result: Any) -> Any:
        """The hook after forward, also where that raised."""
        context = self.context
        if self.policy.output_dtype is not None:
            result = cast_floating(result, self.policy.output_dtype)
        if context is None or engine.running():
            return result  # in backward the part is computed again: its own backward is next
        for group in self.groups:
            if group.reshards or not is_grad_enabled():
                group.reshard()
        hook = partial(_gather_for_backward, context, self.groups)
        for value in tree_iter(result):
            if isinstance(value, Tensor) and value.requires_grad and self.groups:
                value.register_hook(hook)
        return result

    def _sharded(self, *args: Any) -> None:
        """Before a state_dict is made or loaded."""
        for group in self.groups:
            group.reshard()


def _gather_for_backward(context: Context, groups: list[Group], grad: Tensor) -> None:
    """The hook of what forward returned: a part that is checkpointed within the module needs its parameters there."""
    for group in groups:
        context.gather_for_backward(group)


def state_of(module: Module) -> State:
    """What `fully_shard` keeps of `module`."""
    return vars(module)["_fsdp_state"]


def _named_states_below(module: Module) -> Iterator[tuple[str, State]]:
    for name, part in module.named_modules():
        if "_fsdp_state" in vars(part):
            yield name, state_of(part)


def states_below(module: Module) -> list[State]:
    """Of `module` and all modules below it that were given to `fully_shard`."""
    return [state for _, state in _named_states_below(module)]
