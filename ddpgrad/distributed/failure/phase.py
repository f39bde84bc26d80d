"""What a stack says about where in a step a rank is: forward, backward, optimizer, ..."""

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

# Of the innermost frame that one of these is found in: part of a path, or of path:function.
_PHASES = (
    ("launcher/checkpoint/checkpointer", "checkpoint"),
    ("ddpgrad/distributed/ddp/reducer", "gradient exchange"),
    ("ddpgrad/distributed/transports/__init__", "meeting the other ranks"),
    ("ddpgrad/distributed/", "collective"),
    ("ddpgrad/utils/data/", "data loading"),
    ("ddpgrad/autograd/engine", "backward"),
    ("ddpgrad/optim/", "optimizer"),
    ("ddpgrad/nn/modules/module", "forward"),
    ("ddpgrad/nn/", "forward"),
    ("<frozen importlib", "import"),
)
# The phases that say least: an exchange happens within something else, a collective within a backward.
_INNER = ("collective", "gradient exchange")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_OWN = tuple(str(Path(file).parent) + os.sep for file in (ddpgrad.__file__, __file__))
_MACHINERY = (*_OWN, runpy.__file__, threading.__file__, "<frozen ")
_LIBRARIES = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "purelib", "platlib"))


def is_machinery(file: str) -> bool:
    """Whether code of `file` is what runs a script, which says nothing about the script."""
    return file.startswith(_MACHINERY)


def users_line(places: Iterable[tuple[str, int | str]]) -> str:
    """Of `places`, (file, line) from the innermost on: 'file:line' of the first in the user's code, else in a library.

    '' if there is none.
    """
    outside = [place for place in places if not is_machinery(place[0])]
    own = [place for place in outside if not place[0].startswith(_LIBRARIES)]
    return "{}:{}".format(*(own or outside)[0]) if outside else ""


def phase_of(frames: Iterable[tuple[str, str]]) -> str:
    """The phase that `frames`, (file, function) from the innermost on, stand for; '' if none is known."""
    found = ""
    for file, _ in frames:
        name = next((phase for part, phase in _PHASES if part in file.replace("\\", "/")), "")
        if name in _INNER:
            found = found or name
        elif name and name != "import":
            return f"{name}, {found}" if found else name
        elif name and not found:
            found = name
    return found


@dataclass(frozen=True)
class Stack:
    """One thread of a dump of `faulthandler`."""

    text: str
    frames: Sequence[tuple[str, str]]
    """(file, function), the innermost first."""
    where: str
    """As `users_line` has it."""


def main_stack(dump: str) -> Stack | None:
    """The thread that runs the program; of several ranks' threads, the one that is not waiting for its turn."""
    threads = [
        _stack(part) for part in re.split(r"(?m)^(?=(?:Current thread|Thread) )", dump) if "File " in part
    ]
    own = [thread for thread in threads if thread.where]
    working = [
        thread for thread in own if not any("distributed/ranks/baton" in file for file, _ in thread.frames)
    ]
    return next(iter(working or own or threads), None)


def _stack(text: str) -> Stack:
    lines = text.splitlines()
    found = [(m["file"], m["function"], m["line"], at) for at, m in enumerate(map(_FRAME.match, lines)) if m]
    # From the innermost frame to the script's outermost: what runs the script says nothing.
    users = [at for file, _, _, at in found if not is_machinery(file)]
    if users:
        lines = lines[: users[-1] + 1]
        found = [frame for frame in found if frame[3] <= users[-1]]
    where = users_line((file, line) for file, _, line, _ in found)
    shown = "".join(f"{line}\n" for line in lines)
    return Stack(shown, [(file, function) for file, function, _, _ in found], where)
