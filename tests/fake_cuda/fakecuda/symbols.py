"""The functions of libraries that are loaded: where they are, and others in their place."""

import ctypes
import json
import os
import subprocess
from pathlib import Path

from . import build

Function = int  # its address


def needed(library: str | Path) -> list[str]:
    """The names of the libraries that `library` asks the loader for."""
    told = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line]


def undefined(library: str | Path) -> list[tuple[str, str]]:
    """(name, version) of each function that `library` takes from others; the version is '' where it asks for none."""
    told = _nm("-D", "--undefined-only", library)
    return [
        (name, version)
        for line in told
        for name, _, version in [line.split()[-1].replace("@@", "@").partition("@")]
    ]


def defined(library: str | Path, prefix: str) -> dict[str, int]:
    """name -> offset of each function of `library` whose name begins so, exported or not."""
    key = build.digest(str(library), prefix, str(os.path.getmtime(library)))
    kept = build.cache() / f"symbols-{key}.json"
    if not kept.exists():
        rows = [line.split() for line in _nm(library)]
        found = {
            row[2]: int(row[0], 16)
            for row in rows
            if len(row) == 3 and row[1] in "tTwW" and row[2].startswith(prefix)
        }
        rough = build.of_this_thread(kept)
        rough.write_text(json.dumps(found))
        rough.replace(kept)
    return json.loads(kept.read_text())


def _nm(*arguments: str | Path) -> list[str]:
    return subprocess.run(
        ["nm", *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def base(library: str | Path) -> int:
    """Where the loader put `library`."""
    real = os.path.realpath(library)
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and os.path.realpath(fields[5]) == real:
            return int(fields[0].split("-")[0], 16)
    raise LookupError(f"{library} is not loaded")


def redirect(machine: ctypes.CDLL, place: Function, target: Function) -> None:
    """Let the function at `place` be the one at `target`."""
    if machine.fakecuda_redirect(ctypes.c_void_p(place), ctypes.c_void_p(target)):
        raise OSError(f"the page at {place:#x} cannot be made writable")


def exported(library: ctypes.CDLL, name: str) -> Function | None:
    """The address of an exported function, or None."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None
