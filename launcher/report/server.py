"""The report on a port of this machine, made anew for each request: of a job that still runs, too."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ddpgrad.core.errors import LaunchError


def serve(port: int, render: Callable[[], str]) -> None:
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
                status, kind, text = 200, "text/html", render()
            except LaunchError as error:  # the folder may be gone by now
                status, kind, text = 500, "text/plain", str(error)
            body = text.encode("utf-8", "replace")
            self.send_response(status)
            headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
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
