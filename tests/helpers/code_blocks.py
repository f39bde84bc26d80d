"""The code blocks of a page. As a program: runs the Python of each page named, and writes down how that ended.

    python tests/helpers/code_blocks.py docs/data.md ...

Every fence has a tag. The `python` blocks of a page run in order, in one namespace; one that begins with the line
`# NAME.py` is that file instead, for the `sh` blocks after it. A `pytb` block is the end of the traceback that the
`python` block above it must give. A `diff` is of a program, whose new form runs on two ranks of this process; or of files,
beginning with `---`, and is read only, as `text` is. A block that cannot run says so in the page:
`<!-- not run: REASON -->` on the line above it.
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import traceback
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<tag>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    line: int
    """Of its first line of code, counted from 1."""
    tag: str
    text: str
    why_not: str
    """Why it is not run; empty where it is."""

    @property
    def file(self) -> str:
        """The file that the block is, or an empty text."""
        named = _FILE.match(self.text) if self.tag == "python" else None
        return named[1] if named else ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(text.count("\n", 0, found.start("text")) + 1, found["tag"], found["text"], found["why"] or "")
        for found in _FENCE.finditer(text)
    ]


def matches(quoted: str, said: str) -> bool:
    """Whether a page quotes a text; `…` stands for any part of it."""
    return bool(re.fullmatch(".*?".join(map(re.escape, quoted.strip().split("…"))), said.strip(), re.DOTALL))


def compiled(block: Block, text: str, page: Path) -> CodeType:
    """So that tracebacks have the page's lines."""
    return compile("\n" * (block.line - 1) + text, str(page), "exec")


def run_diff(block: Block, page: Path) -> None:
    """What a program becomes, on two ranks; what it was must be Python, at least."""
    from ddpgrad import distributed

    lines = block.text.splitlines(keepends=True)
    before, after = ("".join(line[1:] or "\n" for line in lines if line[0] != sign) for sign in "+-")
    compiled(block, before, page)
    code = compiled(block, after, page)
    distributed.simulate(lambda: exec(code, {"__name__": "__main__"}), 2)


def run_python(page: Path) -> None:
    """Run a page's Python in this process. Raises what a block raises, or AssertionError for another error than is quoted."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = blocks_of(page)
    for block, below in zip_longest(blocks, blocks[1:]):
        if block.why_not:
            continue
        if block.tag == "diff" and not block.text.startswith("---"):
            run_diff(block, page)
        if block.tag != "python":
            continue
        code = compiled(block, block.text, page)
        if block.file:
            continue
        if below is None or below.tag != "pytb":
            exec(code, namespace)
            continue
        try:
            exec(code, namespace)
        except Exception as error:
            said = "".join(traceback.format_exception_only(error))
            assert matches(below.text, said), f"{page}:{below.line} quotes what is not said: {said}"
        else:
            raise AssertionError(f"{page}:{block.line} raises nothing")


def _in_child(page: Path, log: Path) -> int:
    """Run a page in a fork of this process, whose modules are loaded; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    with log.open("w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                run_python(page)
            code = 0
        except BaseException:
            traceback.print_exc()
    os._exit(code)


def main(pages: list[str]) -> None:
    """Print `{page: [exit code, output]}`."""
    import ddpgrad.distributed
    import ddpgrad.nn
    import ddpgrad.optim  # noqa: F401

    done = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for page in pages:
            done[page] = _in_child(Path(page).resolve(), log), log.read_text("utf-8")
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1:])
