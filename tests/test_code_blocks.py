"""The code of the pages runs, and errors are quoted as they are; `helpers/code_blocks.py` has the rules for pages."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import code_blocks
import pytest
from code_blocks import PAGES, REPOSITORY, Block, blocks_of

# Whose commands have a test of their own, since one step needs what the one before has left.
ELSEWHERE = {"docs/tutorial.md"}  # tests/test_tutorial.py
TAGS = {"python", "pytb", "sh", "diff", "text"}
# Python and its shell, so that no script of an installation need be there; Open MPI's for root and few cores.
SHELL = 'set -eu; ddprun() { python -m ddpgrad.run "$@"; }\n'
# Of the GPT, whose steps take most of the time of a page.
STEPS = re.compile(r"(?<=train_gpt.py )(.*)--steps 20\b")
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_SEAM = re.compile(r'"\n *f?"')  # between the lines of a text
_INDENTED = re.compile(r"(?<=\n)\n {4,}\S")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def having(*tags: str) -> list[Path]:
    return [page for page in PAGES if any(b.tag in tags and not b.why_not for b in blocks_of(page))]


@cache
def outcomes() -> dict[str, tuple[int, str]]:
    """Of the Python of each page."""
    pages = [str(page) for page in having("python", "diff")]
    command = [sys.executable, code_blocks.__file__, *pages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **OPEN_MPI, "PATH": path, "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.parametrize("page", having("python", "diff"), ids=name_of)
def test_python_of_a_page_runs(page):
    code, output = outcomes()[str(page)]
    assert code == 0, output


def lacking(block: Block) -> list[str]:
    """Programs that a block starts and that are not installed."""
    there = environment()["PATH"]
    return [
        p
        for p in ("mpirun", "torchrun")
        if re.search(rf"^{p} ", block.text, re.M) and not shutil.which(p, path=there)
    ]


@pytest.mark.full
@pytest.mark.parametrize("page", [p for p in having("sh") if name_of(p) not in ELSEWHERE], ids=name_of)
def test_commands_of_a_page_run(page, tmp_path):
    blocks = [block for block in blocks_of(page) if not block.why_not]
    if not any("examples copy" in block.text for block in blocks if block.tag == "sh"):
        (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    left_out = []
    for block in blocks:
        if block.file:
            (tmp_path / block.file).write_text(block.text, "utf-8")
        elif block.tag == "sh" and lacking(block):
            left_out += lacking(block)
        elif block.tag == "sh":
            done = subprocess.run(
                ["bash", "-c", SHELL + STEPS.sub(r"\1--steps 6", block.text)],
                cwd=tmp_path,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, f"{page}:{block.line}\n{done.stdout}{done.stderr}"
    if left_out:
        pytest.skip(f"not installed: {', '.join(left_out)}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    """No block escapes for want of a tag, or since it is only indented."""
    text = page.read_text("utf-8")
    assert {block.tag for block in blocks_of(page)} <= TAGS
    assert 2 * len(blocks_of(page)) == len(re.findall(r"^ *```", text, re.MULTILINE))
    outside = code_blocks._FENCE.sub("", text)
    assert not _INDENTED.search(outside), "a block without a fence"


def test_errors_that_no_program_gives_stand_in_the_source():
    quoted = [block.text for block in blocks_of(REPOSITORY / "docs" / "errors.md") if block.tag == "text"]
    parts = {part.strip() for text in quoted for part in re.split(r"…|\n", text)} - {""}
    files = (file for folder in ("ddpgrad", "launcher") for file in (REPOSITORY / folder).rglob("*.py"))
    source = _SEAM.sub("", "\n".join(file.read_text("utf-8") for file in files))
    assert len(parts) > 5 and not [part for part in parts if part not in source]


def test_a_wrong_page_fails(tmp_path):
    page = tmp_path / "page.md"
    for text, error in (
        ("```python\n1 / 0\n```\n```pytb\nZeroDivisionError: division by …\n```", None),
        ("```python\n1 / 0\n```\n```pytb\nZeroDivisionError: division by one\n```", AssertionError),
        ("```python\n1\n```\n```pytb\nZeroDivisionError: …\n```", AssertionError),
        ("```diff\n-1 = 1\n+1\n```", SyntaxError),
        ("```diff\n 1\n-2\n+1 / 0\n```", ZeroDivisionError),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```", AssertionError),
        ("<!-- not run: it ends nothing -->\n```python\n1 / 0\n```", None),
    ):
        page.write_text(text + "\n")
        if error is None:
            code_blocks.run_python(page)
        else:
            with pytest.raises(error):
                code_blocks.run_python(page)
