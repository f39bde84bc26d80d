"""What is known of a module that was given to `fully_shard`, and what happens around its forward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...autograd import engine
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...utils._pytree import tree_iter
from ..ddp.mixed_precision import cast_floating
from ..device_mesh import DeviceMesh
from .context import Context
from .group import Group
from .policies import MixedPrecisionPolicy


class State:
    """groups: of the modules' own parameters, one for each dtype. mesh, reshards, nonfinite: as `fully_shard` was told.

    next_in_forward: whose groups are on their way once this one's are there.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        groups: list[Group],
        policy: MixedPrecisionPolicy,
        mesh: DeviceMesh,
        reshards: bool | None,
        nonfinite: str | None,
    ) -> None:
        self.modules, self.groups, self.policy, self.reshards = list(modules), groups, policy, reshards
        self.mesh, self.nonfinite = mesh, nonfinite
        self.context: Context | None = None
        self.next_in_forward: list[State] = []
        self._to_run: set[int] = set()  # of the modules, by id, once one of them runs

    def listen(self) -> None:
        """Register the hooks around forward and the state_dict."""
        for module in self.modules:
            module.register_forward_pre_hook(self.before, prepend=True, with_kwargs=True)
            module.register_forward_hook(self.after, always_call=True)
            module.register_state_dict_pre_hook(self._sharded)
            module.register_load_state_dict_pre_hook(self._sharded)
            module.register_load_state_dict_post_hook(self._assigned)

    def set_reshard_after_forward(self, reshards: bool) -> None:
        self.reshards = reshards
        for group in self.groups:
            group.reshards, group.few = reshards, None

    def ready(self) -> Context:
        """The context; made when a module is used that lies below no other that was used before."""
        if self.context is None:
            if len(self.modules) > 1:
                kinds = ", ".join(type(m).__name__ for m in self.modules)
                raise RuntimeError(
                    f"fully_shard: [{kinds}] form one group and are used by themselves: call fully_shard for the module that has "
                    "them, too, and use that"
                )
            named = {id(m): name for name, m in self.modules[0].named_modules()}
            states = states_below(self.modules[0])
            mine = self.mesh._flatten().get_group()
            for state in states:
                prefix = ", ".join(named[id(m)] for m in state.modules if id(m) in named)
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
                    group.name_below(prefix, named)
                    group.adopt(whole=False)
                    group.reshards = state is not self if state.reshards is None else state.reshards
            groups = [group for state in states for group in state.groups]
            context = Context(self, groups, mine.communicator, self.nonfinite)
            for state in states:
                state.context = context
        return self.context  # type: ignore[return-value]

    def before(self, module: Module, args: Any, kwargs: Any) -> Any:
        """The hook before forward."""
        context = self.ready()
        if context.root is self:
            context.begin_forward()
            self._end_half_used()
        if len(self.modules) > 1 and not engine.running():
            self._to_run = self._to_run or set(map(id, self.modules))
            context.half_used[self] = None
        for group in self.groups:
            context.uses(group)
            group.gather()
        if not engine.running():
            for state in self.next_in_forward:
                for group in state.groups:
                    group.start_gathering()
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
        self._to_run.discard(id(module))
        if not self._to_run:
            self.leave()
        if context.root is self:
            self._end_half_used()
        hook = partial(_gather_for_backward, context, self.groups)
        for value in tree_iter(result):
            if isinstance(value, Tensor) and value.requires_grad and self.groups:
                value.register_hook(hook)
        return result

    def _end_half_used(self) -> None:
        """Of several modules that form a group forward may have used some only."""
        assert self.context is not None
        for state in self.context.half_used:
            state.leave()
        self.context.half_used.clear()

    def leave(self) -> None:
        """Forward needs the groups no more."""
        self._to_run.clear()
        for group in self.groups:
            group.leave_forward()

    def _sharded(self, *args: Any) -> None:
        """Before a state_dict is made or loaded."""
        for group in self.groups:
            group.reshard()

    def _assigned(self, *args: Any) -> None:
        """After a state_dict was loaded, which may have assigned other parameters."""
        for group in self.groups:
            group.adopt()
        if self.context is not None:
            self.context.name_owners()


def _gather_for_backward(context: Context, groups: list[Group], grad: Tensor) -> None:
    """The hook of what forward returned: a part that is checkpointed within the module needs its parameters there."""
    for group in groups:
        if group.gathers_early:
            context.gather_for_backward(group)


def state_of(module: Module) -> State:
    """What `fully_shard` keeps of `module`."""
    return vars(module)["_fsdp_state"]


def module_state(module: Module) -> State | None:
    """The same, or None of a module that was not given to it."""
    return vars(module).get("_fsdp_state")


def states_below(module: Module) -> list[State]:
    """Of `module` and all modules below it that were given to `fully_shard`, each once."""
    return [*{state: None for part in module.modules() if (state := module_state(part)) is not None}]
