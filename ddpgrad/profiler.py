"""`torch.profiler`: labels that programs put around their parts; measuring is other tools' work."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn


class record_function(contextlib.ContextDecorator):
    """A label around a block, or a decorator; it costs nothing and records nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class profile:
    """Refused: there is no profiler of this kind."""

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.profiler.profile: ddpgrad has no profiler of its own. Use `python -m cProfile` or py-spy for the CPU, "
            "and Nsight Systems for a GPU"
        )


__all__ = ["profile", "record_function"]
