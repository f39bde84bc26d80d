"""The API reference, a page for each public package, and README as the first page: a hook of mkdocs (`mkdocs.yml`).

Names come from the `__init__.pyi` of the package. Each is shown on the first page of `PAGES` that has it; pages
further down link to it.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ddpgrad.core.face import homes

PACKAGE = Path(__file__).parents[2] / "ddpgrad"
PAGES = (
    "nn", "nn.functional", "nn.utils", "nn.parallel", "optim", "optim.lr_scheduler", "autograd",
    "utils.data", "distributed", "launcher", "amp", "func", "linalg", "fft", "special", "cuda", "ddpgrad",
)  # fmt: skip
_LOCAL_LINK = re.compile(r"\[([^\]]+)\]\(((?!http)[^)]+)\)")

Origin = tuple[str, str]
"""The module that defines a name, and the name there."""


class Ops(griffe.Extension):
    """Shows ops as users call them: without the vocabulary `F`, which bodies get first."""

    def on_function(self, *, func: griffe.Function, **kwargs: object) -> None:
        if func.path.startswith("ddpgrad.ops.") and func.decorators and "F" in func.parameters:
            del func.parameters["F"]

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: object) -> None:
        """What is made by a call has signature and text at run time only."""
        if attr.path.startswith(("ddpgrad.ops.", "ddpgrad.nn.functional.")) and isinstance(
            attr.value, griffe.ExprCall
        ):
            made = getattr(import_module(attr.module.path), attr.name, None)
            if isinstance(made, FunctionType):
                text = f"`{attr.name}{_plain(inspect.signature(made))}`\n\n{inspect.getdoc(made) or ''}"
                attr.docstring, attr.value = griffe.Docstring(text, parent=attr), None
                attr.labels.discard("module-attribute")


def _plain(signature: inspect.Signature) -> str:
    """A signature whose annotations are text, without their quotes."""
    return re.sub(
        r": '([^']*)'|(?<=-> )'([^']*)'",
        lambda found: f": {found[1]}" if found[1] else found[2],
        str(signature),
    )


@cache
def names(module: str) -> dict[str, Origin]:
    """Public name -> origin, for what a package or a page of names such as `fft.py` hands on."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    if (stub := path / "__init__.pyi").exists():
        found = homes(module, stub.read_text("utf-8"))
    elif path.parent == PACKAGE and (page := path.with_suffix(".py")).exists():
        found = homes(module.rpartition(".")[0], page.read_text("utf-8"))
    else:
        return {}
    return {
        name: origin(*home)
        for name, home in found.items()
        if not name.startswith("_") and home[0].startswith("ddpgrad.") and not _is_module(home)
    }


def _is_module(home: Origin) -> bool:
    path = PACKAGE.joinpath(*home[0].split(".")[1:], home[1])
    return path.is_dir() or path.with_suffix(".py").exists()


def origin(module: str, name: str) -> Origin:
    """Where a name is defined, past the packages that hand it on."""
    return names(module).get(name, (module, name))


@cache
def written(module: str) -> frozenset[str]:
    """The names that the text of a module defines; others it makes while it is loaded."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: set[str] = set()
    for node in ast.parse(source.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return frozenset(found)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those that lie in `docs/`."""
    readme = _LOCAL_LINK.sub(_within_site, (PACKAGE.parent / "README.md").read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=readme))
    shown: set[Origin] = set()
    for page in PAGES:
        text = "\n".join(_page(page, shown))
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files


def _within_site(link: re.Match[str]) -> str:
    """A link of README's as it is on the site, which has the files in `docs/`; other files are only named."""
    text, target = link.groups()
    return f"[{text}]({target.removeprefix('docs/')})" if target.startswith("docs/") else text


def _page(page: str, shown: set[Origin]) -> Iterator[str]:
    module = "ddpgrad" if page == "ddpgrad" else f"ddpgrad.{page}"
    yield f"# {module}\n"
    path = PACKAGE.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    yield (ast.get_docstring(ast.parse(source.read_text("utf-8"))) or "") + "\n"
    by_origin: dict[Origin, list[str]] = {}
    for name, home in names(module).items():
        by_origin.setdefault(home, []).append(name)
    elsewhere: list[str] = []
    made: list[str] = []
    for home, called in sorted(by_origin.items(), key=lambda item: item[1][0].lower()):
        path_of = ".".join(home)
        if home in shown:
            elsewhere += [f"[{name}][{path_of}]" for name in called]
            continue
        if home[1] not in written(home[0]):
            made += [f"`{name}`" for name in called]
            continue
        shown.add(home)
        first = home[1] if home[1] in called else called[0]
        others = [f"`{name}`" for name in called if name != first]
        yield f"::: {path_of}\n    options:\n      heading: {first}\n"
        if others:
            yield f"Also by the name {', '.join(others)}.\n"
    if made:
        yield f"Further names: {', '.join(made)}.\n"
    if elsewhere:
        yield f"Described on other pages: {', '.join(elsewhere)}.\n"
