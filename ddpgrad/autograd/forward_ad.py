"""`torch.autograd.forward_ad`, which is refused with the alternatives: there is no forward mode."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn


def _absent(name: str) -> NoReturn:
    raise NotImplementedError(
        f"autograd.forward_ad.{name}: ddpgrad has no forward-mode differentiation. autograd.functional.jvp and "
        "func.jvp compute the same products by two reverse passes."
    )


def dual_level() -> Any:
    """`NotImplementedError`."""
    _absent("dual_level")


def enter_dual_level() -> int:
    """`NotImplementedError`."""
    _absent("enter_dual_level")


def exit_dual_level(*, level: int | None = None) -> None:
    """`NotImplementedError`."""
    _absent("exit_dual_level")


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """`NotImplementedError`."""
    _absent("make_dual")


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent."""

    primal: Any
    tangent: Any


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """(tensor, None): no tensor has a tangent."""
    return UnpackedDualTensor(tensor, None)
