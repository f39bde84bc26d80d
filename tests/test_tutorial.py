"""docs/tutorial.md does what it says: its programs and commands run in order, and print what stands below them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import namespaces
import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "tutorial.md"
LIMIT_S = 600

_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "@@ {} @@"


def patched(diff: str, files: dict[str, str]) -> tuple[str, str]:
    """The name and the text of the file that a diff makes of another."""
    (_, old), (_, new) = (line.split() for line in diff.splitlines()[:2])
    lines = diff.splitlines(keepends=True)[2:]
    before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
    assert files[old].count(before) == 1, f"the diff of {old} does not fit it"
    return new, files[old].replace(before, after)


def script(text: str) -> tuple[str, list[str]]:
    """A page as one shell script, which prints a mark before each output that the page shows, and these outputs."""
    files: dict[str, str] = {}
    lines, shown = [], []
    for kind, body in _BLOCK.findall(text):
        if kind == "text":
            shown.append(body)
        elif kind == "sh":
            lines.append(f"echo; echo '{_MARK.format(len(shown))}'\n{body}")
        else:
            assert kind in ("python", "diff"), f"the test does not know how to run {kind!r}"
            name, content = (
                patched(body, files) if kind == "diff" else (body.split()[1], body.partition("\n")[2])
            )
            files[name] = content
            lines.append(f"cat >{name} <<'END OF FILE'\n{content}END OF FILE\n")
    return "set -e\n" + "".join(lines), shown


def as_pattern(shown: str) -> str:
    return re.escape(shown.rstrip("\n")).replace("…", "(?s:.*)")


@pytest.mark.full
def test_the_tutorial_does_what_it_says(tmp_path):
    text, why_not = PAGE.read_text("utf-8"), namespaces.why_not()
    if why_not:
        text = "".join(part for part in _SECTION.split(text) if "cluster.box exec" not in part)
    program, shown = script(text)
    assert len(shown) > 4, "the page is not read"
    (tmp_path / "cluster").symlink_to(REPOSITORY / "cluster")
    box = {"CLUSTER_BOX": f"tutorial-{os.getpid()}"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", program], cwd=tmp_path, env=os.environ | box | {"PATH": path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        )  # fmt: skip
    finally:
        namespaces.remove(box["CLUSTER_BOX"]) if not why_not else None
    assert done.returncode == 0, done.stdout
    for number, expected in enumerate(shown):
        # Several blocks of commands may stand before one output.
        printed = "".join(done.stdout.split(_MARK.format(number))[1:])
        printed = printed.partition(_MARK.format(number + 1))[0]
        assert re.search(as_pattern(expected), printed), f"expected\n{expected}\ngot\n{printed}"
    if why_not:
        pytest.skip(f"without the hosts: {why_not}")
