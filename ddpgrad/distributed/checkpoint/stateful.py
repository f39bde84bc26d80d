"""What an object needs in order to stand in a state dict as it is."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """An object that gives its state and takes it again; `save` and `load` ask those at the top of a state dict."""

    def state_dict(self) -> dict[str, Any]:
        """The state: a nested dict with tensors, numbers, strings and lists."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over `state_dict`, which has the form that the method of that name returns."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
