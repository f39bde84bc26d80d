"""The mistakes of `test_errors.py` and `test_words.py`, made with PyTorch: it raises the kinds of exceptions, and says the
words, that are expected there."""

import re
from pathlib import Path
from typing import Any

import pytest

IMPORTS = {
    "import ddpgrad as torch\n": "import torch\n",
    "import ddpgrad.": "import torch.",
    "from ddpgrad import errors, nn\n": "from torch import nn\nfrom ddpgrad import errors\n",
    "from ddpgrad import nn\n": "from torch import nn\n",
    "from ddpgrad.nn": "from torch.nn",
}


def made_by_pytorch(file: str) -> dict[str, Any]:
    """The names of a test file, which imports PyTorch in place of ddpgrad."""
    path = Path(__file__).parents[1] / file
    source = path.read_text()
    for ours, theirs in IMPORTS.items():
        source = source.replace(ours, theirs)
    names: dict[str, Any] = {"__name__": "mistakes", "__file__": str(path)}
    exec(compile(source, path, "exec"), names)
    assert names["torch"].__name__ == "torch"
    return names


MISTAKES = made_by_pytorch("test_errors.py")["MISTAKES"]
WORDS = made_by_pytorch("test_words.py")["WORDS"]


@pytest.mark.parametrize("name", MISTAKES)
def test_kind(name: str):
    make, expected, _ = MISTAKES[name]
    with pytest.raises(Exception) as caught:
        make()
    theirs = next(kind for kind in type(caught.value).__mro__ if kind.__module__ == "builtins")
    assert issubclass(expected, theirs), f"PyTorch raises {theirs.__name__}: {caught.value}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("words", "call"), WORDS, ids=[w[:40] for w, _ in WORDS])
def test_words(words: str, call: Any):
    with pytest.raises(Exception, match=re.escape(words)):
        call()
