"""The pages say what is true: links lead somewhere, named files exist, and the way of a gradient is that of a step."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import ddpgrad
from ddpgrad import errors

PACKAGE = Path(ddpgrad.__file__).parent
REPOSITORY = PACKAGE.parent
DOCS = REPOSITORY / "docs"
PAGES = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(REPOSITORY.glob("*/README.md")),
    *sorted(REPOSITORY.glob("cluster/*/README.md")),
]
SOURCES = ("ddpgrad", "launcher", "tests", "examples", "cluster", "docs")
# Files of users that the texts speak of.
THEIRS = {"launcher.py", "script.py", "stopped.py", "train.py"}

_CODE = re.compile(r"```.*?```|^ {4}.*?$", re.DOTALL | re.MULTILINE)
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FILE = re.compile(r"(?<![\w*<}-])((?:\.?[\w-]+/)*\w+\.pyi?)\b(?![\w(])")
_FOLDER = re.compile(r"`((?:ddpgrad|launcher|tests|docs|examples|cluster)/[\w/]*)`")
_STEP = re.compile(r"^\d+\. .*?([\w/]+\.py)\b.*?`([\w.]+)`:", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    broken = []
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        place, _, anchor = target.partition("#")
        if "://" in place:
            continue
        file = (page.parent / place) if place else page
        inside = page.parent != DOCS or file.resolve().is_relative_to(DOCS)  # the site has this folder only
        if not (file.exists() and inside and (not anchor or anchor in anchors(file))):
            broken.append(target)
    assert not broken


def anchors(page: Path) -> set[str]:
    """What `#...` may say on a page, as GitHub and the site make it of the headings."""
    titles = _HEADING.findall(_CODE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@cache
def endings() -> set[str]:
    """Every source file by its path from the repository, and by each shorter ending of that."""
    found = set()
    for path in (file for folder in SOURCES for file in (REPOSITORY / folder).rglob("*.py*")):
        parts = path.relative_to(REPOSITORY).parts
        found.update("/".join(parts[i:]) for i in range(len(parts)))
    return found


def missing_from(text: str) -> Iterator[str]:
    """The files and folders that a text names and that do not exist."""
    for file in _FILE.findall(text):
        file = re.sub("^[ab]/(?=ddpgrad/)", "", file.lstrip("./"))  # as a diff names it
        if file not in endings() | THEIRS:
            yield file
    for folder in _FOLDER.findall(text):
        if not (REPOSITORY / folder).exists():
            yield folder


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / ".ci" / "run"], ids=name_of)
def test_files_that_a_page_names_exist(page):
    assert not list(missing_from(page.read_text("utf-8")))


def test_files_that_docstrings_name_exist():
    wrong = []
    for path in (file for folder in ("ddpgrad", "launcher") for file in (REPOSITORY / folder).rglob("*.py")):
        for text in _DOCSTRING.findall(path.read_text("utf-8")):
            wrong += [f"{name_of(path)}: {name}" for name in missing_from(text)]
    assert not wrong


def test_what_is_missing_is_seen():
    text = "see `core/tensor.py`, gone/tensor.py, `ddpgrad/core/` and `ddpgrad/gone/`; not x.pyc or *.py"
    assert list(missing_from(text)) == ["gone/tensor.py", "ddpgrad/gone/"]
    assert "add-an-op" not in anchors(DOCS / "design.md") and "the-graph" in anchors(DOCS / "design.md")


@cache
def called() -> list[tuple[str, str]]:
    """(file, function) of the first calls in a training step of two processes, in order."""
    command = [
        sys.executable,
        "-m",
        "ddpgrad.launcher",
        "-n",
        "2",
        str(Path(__file__).parent / "jobs" / "traced_step.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rpartition("] ")[2].split(" ", 1) for line in done.stdout.splitlines() if ".py " in line]
    return [(file, function) for file, function in lines]


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_a_gradient_travels_as_the_page_says(page):
    text = (REPOSITORY / page).read_text("utf-8")
    steps = _STEP.findall(text.partition("ow a gradient travels")[2].partition("\n## ")[0])
    assert len(steps) >= 8, "the list is not read"
    firsts = [
        next((i for i, (at, f) in enumerate(called()) if at == file and f"{f}.".startswith(f"{name}.")), None)
        for file, name in ((file.removeprefix("ddpgrad/"), name) for file, name in steps)
    ]
    assert None not in firsts, f"not called: {steps[firsts.index(None)]}"
    assert firsts == sorted(firsts), [step for _, step in sorted(zip(firsts, steps, strict=True))]


def test_rooms_and_layers_are_those_of_the_design():
    text = (DOCS / "design.md").read_text("utf-8")
    drawn, below = text.partition("From the bottom:")[2].split("```")[1].removeprefix("text").split("<-"), -1
    rules = ast.parse((REPOSITORY / "tests" / "test_architecture.py").read_text("utf-8"))
    layers = next(ast.literal_eval(node.value) for node in rules.body if _assigns(node, "LAYERS"))
    for names in drawn:
        (place,) = {i for name in names.split(",") for i, layer in enumerate(layers) if name.strip() in layer}
        assert place > below, f"{names.strip()} is not above what is drawn before it"
        below = place
    rooms = {
        name
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`(.+?)`", row)
    }
    assert rooms == {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}


def _assigns(node: ast.stmt, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == [name]


def test_commits_are_checked_as_by_ci():
    hooks = re.findall(r"entry: (.+)", (REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8"))
    lines = (REPOSITORY / ".ci" / "run").read_text("utf-8").splitlines()
    assert hooks and not [command for command in hooks if command not in lines]


def test_errors_are_drawn_as_they_are():
    drawn, above = {}, {}
    for indent, name in re.findall(r"^ {4}([ |]*\+-- |)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        above[len(indent)] = name
        drawn[name] = above.get(len(indent) - 4)
    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.DdpgradError)
    }
    assert drawn == {"RuntimeError": None, **classes}
