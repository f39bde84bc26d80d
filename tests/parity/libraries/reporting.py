"""`say`: one line of results, which test_library_programs.py compares."""

import json
import sys
from typing import Any


def say(key: str, *values: Any) -> None:
    """Write `key` and the values, in one piece where several ranks share the output."""
    sys.stdout.write(f"=> {json.dumps([key, _plain(values)])}\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return _plain(value.detach().tolist() if hasattr(value, "detach") else value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
