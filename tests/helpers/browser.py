"""A page in Chromium without a window, driven by its debugging protocol over a pipe: https://chromedevtools.github.io/devtools-protocol"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 60.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "+": 187,
    "-": 189,
    "0": 48,
}


# Chromium reads commands from its descriptor 3 and answers by 4, wherever the pipes are here.
_ONTO = """
import fcntl, os, sys
given = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]
for descriptor, pipe in zip((3, 4), given):
    os.dup2(pipe, descriptor)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """The Chromium of this machine, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page. `complaints` are what its console was told, uncaught errors and refused loads, as texts."""

    def __init__(self, commands: int, answers: int) -> None:
        self.complaints: list[str] = []
        self._commands, self._answers = commands, answers
        self._rest, self._count, self._session = b"", 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def show(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page, in a window of this size."""
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        said = self._call("Page.navigate", url=address)
        assert "errorText" not in said, said
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width: int, height: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        said = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression of the page is true."""
        deadline = time.monotonic() + LIMIT_S
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Keys one after the other, with what the browser itself does for them."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            about = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
            self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
            self._call("Input.dispatchKeyEvent", type="keyUp", **about)

    def drag(self, began: tuple[float, float], ended: tuple[float, float]) -> None:
        """Move the pointer with its button down, from one point of the window to another."""
        steps = [
            ("mouseMoved", began),
            ("mousePressed", began),
            ("mouseMoved", ended),
            ("mouseReleased", ended),
        ]
        for kind, (x, y) in steps:
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A picture of the window, or of the whole page, as PNG."""
        said = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(said["data"]))

    def close(self) -> None:
        self._session = ""
        self._call("Browser.close")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            told = self._receive(method)
            if told.get("id") == self._count:
                assert "error" not in told, (method, told["error"])
                return told["result"]
            self._note(told.get("method"), told.get("params", {}))

    def _note(self, event: str | None, about: dict[str, Any]) -> None:
        match event:
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(about["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(about["args"]))
            case "Log.entryAdded":
                self.complaints.append(about["entry"]["text"])

    def _receive(self, method: str) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._answers, 1 << 20) if ready else b""
            assert part, (
                f"Chromium {'has ended' if ready else f'did not answer within {LIMIT_S:.0f} s'}: {method}"
            )
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in the folder `profile`, which ends with the block."""
    chromium = program()
    assert chromium is not None
    commands_in, commands = os.pipe()
    answers, answers_out = os.pipe()
    words = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu",
             "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]  # fmt: skip
    if os.geteuid() == 0:
        words.append("--no-sandbox")  # Chromium's does not work for root
    onto = [sys.executable, "-S", "-c", _ONTO, str(commands_in), str(answers_out)]
    with (profile.parent / f"{profile.name}.log").open("wb") as log:
        popen = subprocess.Popen(
            [*onto, chromium, *words], pass_fds=(commands_in, answers_out), stdout=log, stderr=log
        )
    os.close(commands_in)
    os.close(answers_out)
    try:
        page = Browser(commands, answers)
        yield page
        page.close()
        popen.wait(LIMIT_S)
    finally:
        popen.kill()
        popen.wait()
        os.close(commands)
        os.close(answers)
