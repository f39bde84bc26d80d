"""Files that take the place of others when they are whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO

# Names of what a process has open already; to replace it would be another file than that.
_OPEN_ALREADY = ("/dev/fd/", "/dev/std", "/proc/")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write, which becomes `path` at the end: until then, and after an error, `path` is as it was.

    So a full disk or a kill costs no earlier file, and whoever reads meanwhile, or has mapped the earlier one, sees a whole
    one. Mode and links of `path` stay. Pipes, devices, files of other users or with other names, and those in folders that
    take no new files, are written in place. OSError names `path`.
    """
    target = os.path.realpath(path)
    folder, found = os.path.dirname(target), _status(target)
    handle = None
    if _may_be_replaced(os.path.abspath(path), target, found):
        with contextlib.suppress(OSError):  # the system, or the folder, has none
            handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    file = open(path if handle is None else handle, "wb")  # noqa: SIM115 - closed twice where that fails
    try:
        yield file
        file.flush()
        if handle is not None:
            _put_in_place(handle, folder, target, found)
        file.close()
    except BaseException as error:
        with contextlib.suppress(OSError):  # it would tell of the same again
            file.close()
        if not isinstance(error, OSError) or error.errno is None or error.filename is not None:
            raise
        kept = "" if handle is None or found is None else "; the file that was there before is as it was"
        raise type(error)(error.errno, f"{error.strerror}{kept}", os.fspath(path)) from None


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _may_be_replaced(path: str, target: str, found: os.stat_result | None) -> bool:
    if path.startswith(_OPEN_ALREADY) or not hasattr(os, "O_TMPFILE") or not os.path.exists("/proc/self/fd"):
        return False
    if found is None:
        return True
    own = found.st_uid == os.geteuid() and found.st_nlink == 1
    return own and stat.S_ISREG(found.st_mode) and os.access(target, os.W_OK)


def _put_in_place(handle: int, folder: str, target: str, found: os.stat_result | None) -> None:
    """Give the file without a name that is open as `handle` the name `target`."""
    name = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if found is not None:
            os.fchmod(handle, stat.S_IMODE(found.st_mode))
        # Only with the number of a folder does Python follow the link to the file.
        os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=where)
        try:
            os.replace(name, target)
        except OSError:
            os.unlink(name)
            raise
    finally:
        os.close(where)
