"""Inputs and outputs of modules as DTensors, without a division of parameters.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....nn.modules.module import Module
from ...device_mesh import DeviceMesh
from ..layout import Placement
from .styles import ParallelStyle, annotated, brought

Layouts = Placement | Sequence[Placement | None] | None


def _as_tuple(layouts: Layouts) -> Any:
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _prepared(
    value: Any, mesh: DeviceMesh, now: Placement | None, wanted: Placement | None, local: bool
) -> Any:
    """`value`, which lies as `now` says, where it is `wanted`; itself where nothing is said."""
    if now is None:
        return value
    tensor = annotated(value, mesh, (now,))
    if wanted is not None and now != wanted:
        tensor = brought(tensor, (wanted,))
    return tensor.to_local() if local else tensor


class PrepareModuleInput(ParallelStyle):
    """Bring the arguments of a module's forward, which lie as `input_layouts` say, to `desired_input_layouts`.

    One placement for each argument, None for one that stays as it is; those given by name have dicts. use_local_output: the
    module gets this rank's parts, ordinary tensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _as_tuple(input_layouts)
        self.desired_input_layouts = _as_tuple(desired_input_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError(
                "input_kwarg_layouts and desired_input_kwarg_layouts should have same length!"
            )

    def _positional(self, inputs: Any, mesh: DeviceMesh) -> Any:
        if self.input_layouts is None:
            return inputs
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(given) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        return tuple(
            _prepared(value, mesh, now, wanted, self.use_local_output)
            for value, now, wanted in zip(given, self.input_layouts, self.desired_input_layouts, strict=True)
        )

    def _by_name(self, kwargs: Mapping[str, Any], mesh: DeviceMesh) -> dict[str, Any]:
        now, wanted = self.input_kwarg_layouts, self.desired_input_kwarg_layouts
        return {
            key: _prepared(value, mesh, now.get(key), wanted.get(key), self.use_local_output)
            for key, value in kwargs.items()
        }

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(_: Module, inputs: Any, kwargs: Any) -> Any:
            return self._positional(inputs, device_mesh), self._by_name(kwargs, device_mesh)

        if self.with_kwargs:
            module.register_forward_pre_hook(prepare, with_kwargs=True)
        else:
            module.register_forward_pre_hook(lambda _, inputs: self._positional(inputs, device_mesh))
        return module

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, desired_input_layouts={self.desired_input_layouts}, "
            f"input_kwarg_layouts={self.input_kwarg_layouts}, desired_input_kwarg_layouts={self.desired_input_kwarg_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class PrepareModuleOutput(ParallelStyle):
    """Bring what a module's forward returns, which lies as `output_layouts` say, to `desired_output_layouts`.

    One placement for each output, None for one that stays as it is. use_local_output: of each it is this rank's part, an
    ordinary tensor.
    """

    def __init__(
        self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True
    ) -> None:
        self.output_layouts = _as_tuple(output_layouts)
        self.desired_output_layouts = _as_tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _outputs(self, outputs: Any, mesh: DeviceMesh) -> Any:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(given) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = [
            _prepared(value, mesh, now, wanted, self.use_local_output)
            for value, now, wanted in zip(
                given, self.output_layouts, self.desired_output_layouts, strict=True
            )
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        module.register_forward_hook(lambda _, inputs, outputs: self._outputs(outputs, device_mesh))
        return module

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_layouts={self.output_layouts}, desired_output_layouts={self.desired_output_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together; use_local_input is the former's `use_local_output`."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        entered, left = self.prepare_module_input, self.prepare_module_output
        return (
            f"{type(self).__name__}(input_layouts={entered.input_layouts}, desired_input_layouts={entered.desired_input_layouts}, "
            f"input_kwarg_layouts={entered.input_kwarg_layouts}, "
            f"desired_input_kwarg_layouts={entered.desired_input_kwarg_layouts}, use_local_input={entered.use_local_output}, "
            f"output_layouts={left.output_layouts}, desired_output_layouts={left.desired_output_layouts}, "
            f"use_local_output={left.use_local_output})"
        )
