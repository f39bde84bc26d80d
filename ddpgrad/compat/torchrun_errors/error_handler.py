"""Error files, as torchrun's agent reads them."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core import environment


class ErrorHandler:
    """Writes errors to the file that TORCHELASTIC_ERROR_FILE names, as torchrun's agent reads it; without one, nowhere."""

    def initialize(self) -> None:
        """Nothing is to be prepared: tracebacks of signals are the reporter's."""

    def record_exception(self, error: BaseException) -> None:
        """Write `error`, which is being handled or was."""
        stack = "".join(traceback.format_exception(error))
        extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
        _write({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}})

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Let what a file holds say with which code its process ended."""
        if isinstance(rootcause_error.get("message"), dict):
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Write what another process has written to its file, with the code that it ended with."""
        told = json.loads(Path(rootcause_error_file).read_text("utf-8"))
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, told, error_code)
        _write(told)


def _write(told: Mapping[str, Any]) -> None:
    path = environment.mapping().get("TORCHELASTIC_ERROR_FILE")
    if path:
        Path(path).write_text(json.dumps(told), "utf-8")
