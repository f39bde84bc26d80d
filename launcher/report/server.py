"""The report on a port of this machine, made anew when the files of a run have changed: of a job that still runs, too."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ddpgrad.core.errors import LaunchError

from .run_data import Run


class Latest:
    """The page about the runs that `read` finds, made by `render` with its version: an HTTP entity tag."""

    def __init__(self, read: Callable[[], list[Run]], render: Callable[[list[Run], str], str]) -> None:
        self._read, self._render = read, render
        self._lock = threading.Lock()
        self._places: set[Path] = set()
        self._page = "", ""

    def get(self, known: str | None) -> tuple[str, str | None]:
        """The version, and the text unless that is `known`."""
        with self._lock:
            # The version comes before the reading: what changes meanwhile makes another one.
            while not self._places or _version(self._places) != self._page[0]:
                version, runs = _version(self._places), self._read()
                before, self._places = self._places, {place for run in runs for place in run.places}
                if self._places == before:
                    self._page = version, self._render(runs, version)
                    break
            version, text = self._page
            return version, None if version == known else text


def _version(places: Iterable[Path]) -> str:
    """Changes with the files in any of the folders, and the folders in them."""
    digest = hashlib.sha256()
    for place in sorted(places):
        with suppress(OSError), os.scandir(place) as entries:  # reading says what is missing
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(FileNotFoundError):
                    about = entry.stat()
                    digest.update(
                        f"{entry.path!r} {about.st_mtime_ns} {about.st_size} {about.st_ino}\n".encode()
                    )
    return f'"{digest.hexdigest()[:32]}"'


def serve(port: int, latest: Latest) -> None:
    """Answer on 127.0.0.1 until Ctrl-C. port: 0 for any that is free. LaunchError where it cannot be had.

    Every user of this machine reaches the port; the address that is printed has a secret, and no other is answered.
    """
    path = f"/{secrets.token_urlsafe(16)}/"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not secrets.compare_digest(self.path.encode(), path.encode()):
                self.send_error(404)
                return
            try:
                version, text = latest.get(self.headers["If-None-Match"])
                status, kind, headers = 200 if text is not None else 304, "text/html", {"ETag": version}
            except LaunchError as error:  # the folder may be gone by now
                status, kind, headers, text = 500, "text/plain", {}, str(error)
            body = (text or "").encode("utf-8", "replace")
            self.send_response(status)
            if text is not None:
                headers |= {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
            headers |= {
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the lines would show the secret."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise LaunchError(f"--serve {port}: {error}") from None
    with server, suppress(KeyboardInterrupt):
        print(f"report: http://127.0.0.1:{server.server_port}{path} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
