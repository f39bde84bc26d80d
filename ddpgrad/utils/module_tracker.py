"""Which modules run: in forward between the calls of hooks on modules, in backward between those on their tensors."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ..autograd import engine
from ..autograd.graph import register_multi_grad_hook
from ..core.tensor import Tensor
from ..nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..nn.modules.module import Module
from ._pytree import tree_leaves


class ModuleTracker:
    """Within a `with` block `parents` are the names of the modules whose forward or backward is running.

    A name is the class of the outermost module and the path from there, as in "Net.layers.0". "Global" is always
    among them. The backward of a module begins with the last gradient of its outputs and ends with that of
    its inputs, or, where these need none, with the whole pass.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._handles: list[Any] = []
        self._ends_with_pass = False

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass of this thread is running."""
        return engine.running()

    def __enter__(self) -> ModuleTracker:
        self._handles += [
            register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after),
        ]  # fmt: skip
        return self

    def __exit__(self, *exc: object) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _name(self, module: Module) -> str:
        """The name of `module`; those below it get theirs with it."""
        name = self._names.setdefault(module, type(module).__name__)
        for path, child in module.named_modules():
            if path:
                self._names.setdefault(child, f"{name}.{path}")
        return name

    def _before(self, module: Module, args: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        self._when_known(args, lambda grads: self.parents.discard(name))

    def _after(self, module: Module, args: Any, output: Any) -> None:
        name = self._names[module]
        self.parents.discard(name)
        self._when_known(output, lambda grads: self._enter_backward(name))

    def _when_known(self, values: Any, call: Any) -> None:
        """Call `call` in each backward pass that has the gradients of the tensors among `values`."""
        tensors = [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.requires_grad]
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, call))

    def _enter_backward(self, name: str) -> None:
        if not self._ends_with_pass:
            self._ends_with_pass = True
            engine.queue_cleanup(self._leave_all)
        self.parents.add(name)

    def _leave_all(self) -> None:
        self.parents = {"Global"}
        self._ends_with_pass = False
