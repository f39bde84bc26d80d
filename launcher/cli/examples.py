"""`ddprun examples`: lists the example programs of the package, and copies them."""

from __future__ import annotations

import argparse
import ast
import shutil
from collections.abc import Sequence
from pathlib import Path

import ddpgrad
from ddpgrad.core.errors import LaunchError

FOLDER = Path(str(ddpgrad.__file__)).with_name("examples")


def main(argv: Sequence[str]) -> int:
    """Run `ddprun examples` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ddprun examples", description="Programs to begin with. Without a command: list them."
    )
    commands = parser.add_subparsers(dest="command")
    copy = commands.add_parser("copy", help="copy an example, with what it imports; without NAME all")
    copy.add_argument("name", nargs="?", metavar="NAME", help="such as train_gpt (default: all)")
    copy.add_argument("folder", nargs="?", type=Path, default=Path("examples"), metavar="DIR",
                      help="where to; it is made if need be (default: examples)")  # fmt: skip
    chosen = parser.parse_args(argv)
    found = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    if chosen.command is None:
        for name, path in found.items():
            print(f"{name:14} {_summary(path)}")
        print("\nddprun examples copy NAME writes one to examples/NAME.py")
        return 0
    if chosen.name is None:
        wanted = set(found)
    elif (name := chosen.name.removesuffix(".py")) in found:
        wanted = _with_imports(name, found)
    else:
        raise LaunchError(f"no example {chosen.name!r}; there are {', '.join(found)}")
    _copy([found[name] for name in sorted(wanted)], chosen.folder)
    return 0


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return doc.partition("\n")[0]


def _with_imports(name: str, found: dict[str, Path]) -> set[str]:
    """The example `name`, and those that it imports."""
    wanted, new = set(), {name}
    while new:
        wanted |= new
        nodes = [node for one in new for node in ast.walk(ast.parse(found[one].read_text("utf-8")))]
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        new = (imported & found.keys()) - wanted
    return wanted


def _copy(files: Sequence[Path], folder: Path) -> None:
    targets = [folder / file.name for file in files]
    there = [
        target for file, target in zip(files, targets, strict=True)
        if target.exists() and target.read_bytes() != file.read_bytes()
    ]  # fmt: skip
    if there:
        raise LaunchError(f"{there[0]} is there already, and differs; remove it, or give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, target in zip(files, targets, strict=True):
            shutil.copyfile(file, target)
            print(target)
    except OSError as error:
        raise LaunchError(f"cannot copy to {folder}: {error}") from None
