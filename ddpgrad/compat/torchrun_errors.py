"""`record`, the decorator with which scripts mark their main function for torchrun's error files."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ..core import environment

F = TypeVar("F", bound=Callable[..., Any])


def record(fn: F) -> F:
    """`fn`, of which a failure is written where torchrun asks for it; an exit with code 0 returns None.

    ddprun shows the traceback of the rank that failed first without being asked.
    """

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
            return None
        except Exception as error:
            path = environment.mapping().get("TORCHELASTIC_ERROR_FILE")
            if path:
                _write(path, error)
            raise

    return cast(F, called)


def _write(path: str, error: Exception) -> None:
    """As torchrun's agent reads it."""
    extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    with open(path, "w") as file:
        json.dump({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}, file)


__all__ = ["record"]
