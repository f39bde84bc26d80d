"""Derives from a stack the phase of a step that a rank is in: forward, backward, optimizer, ..."""

from __future__ import annotations

import os
import re
import runpy
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ddpgrad

# (part of a file's path, phase). The innermost frame with such a path decides, and the first row that fits it.
PHASES = (
    ("launcher/checkpoint/", "checkpoint"),
    ("ddpgrad/distributed/ddp/reducer", "gradient exchange"),
    ("ddpgrad/distributed/transports/__init__", "meeting the other ranks"),
    ("ddpgrad/distributed/", "collective"),
    ("ddpgrad/utils/data/", "data loading"),
    ("ddpgrad/autograd/engine", "backward"),
    ("ddpgrad/optim/", "optimizer"),
    ("ddpgrad/nn/", "forward"),
    ("/numba/", "compiling"),
    ("/cupy/cuda/compiler", "compiling"),
    ("<frozen importlib", "import"),
)
# These say least: a gradient exchange happens within a backward, a collective and a compilation within any phase.
_INNER = ("collective", "gradient exchange", "compiling")
# Ranks of one process wait for their turn there.
TURNS = "ddpgrad/distributed/ranks/baton"
# After the end of the script, in a dump.
WAITS_FOR_THREADS = r'ddpgrad/distributed/ranks/host.py", line \d+ in _join_helpers'
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_PACKAGE = Path(str(ddpgrad.__file__)).parent
# In a checkout `ddpgrad/launcher` is a link, and frames may name the folder behind it.
_OWN = tuple(f"{folder}{os.sep}" for folder in (_PACKAGE, (_PACKAGE / "launcher").resolve()))
_COMMAND = os.path.join(sysconfig.get_path("scripts"), "ddprun")
_MACHINERY = (*_OWN, _COMMAND, runpy.__file__, threading.__file__, "<frozen ")
_LIBRARIES = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "purelib", "platlib"))


def is_machinery(file: str) -> bool:
    """Whether `file` belongs to the machinery that runs a script: Python's runner, and ddpgrad itself."""
    return file.startswith(_MACHINERY)


def users_line(places: Iterable[tuple[str, int | str]]) -> str:
    """'file:line' of the first place in the user's code, else in a library; '' if there is none.

    places: (file, line) of each frame, the innermost first.
    """
    outside = [place for place in places if not is_machinery(place[0])]
    own = [place for place in outside if not place[0].startswith(_LIBRARIES)]
    return "{}:{}".format(*(own or outside)[0]) if outside else ""


def phase_of(frames: Iterable[tuple[str, str]]) -> str:
    """The phase of a stack; '' if it is unknown. frames: (file, function) of each, the innermost first."""
    found = ""
    for file, _ in frames:
        name = next((phase for part, phase in PHASES if part in file.replace("\\", "/")), "")
        if name in _INNER:
            found = found or name
        elif name and name != "import":
            return f"{name}, {found}" if found else name
        elif name and not found:
            found = name
    return found


def is_busy(frames: Iterable[tuple[str, str]]) -> bool:
    """Whether a stack is of work that takes long and counts as no step: compiling, or importing."""
    phase = phase_of(frames)
    return "compiling" in phase or phase.endswith("import")


@dataclass(frozen=True)
class Stack:
    """One thread of a dump of `faulthandler`."""

    text: str
    frames: Sequence[tuple[str, str]]
    """(file, function), the innermost first."""
    where: str
    """The user's line; see `users_line`."""


def main_stack(dump: str) -> Stack | None:
    """The thread that crashed or runs the program; among those of several ranks, one that does not wait for its turn."""
    threads = [
        _stack(part) for part in re.split(r"(?m)^(?=(?:Current thread|Thread) )", dump) if "File " in part
    ]
    own = [thread for thread in threads if thread.where]
    working = [thread for thread in own if not any(TURNS in file for file, _ in thread.frames)]
    fatal = "Fatal Python error" in dump
    crashed = [thread for thread in own if fatal and thread.text.startswith("Current thread")]
    return next(iter(crashed or working or own or threads), None)


def _stack(text: str) -> Stack:
    lines = text.splitlines()
    found = [(m["file"], m["function"], m["line"], at) for at, m in enumerate(map(_FRAME.match, lines)) if m]
    # The frames outside the script's outermost belong to the machinery.
    users = [at for file, _, _, at in found if not is_machinery(file)]
    if users:
        lines = lines[: users[-1] + 1]
        found = [frame for frame in found if frame[3] <= users[-1]]
    where = users_line((file, line) for file, _, line, _ in found)
    shown = "".join(f"{line}\n" for line in lines)
    return Stack(shown, [(file, function) for file, function, _, _ in found], where)
