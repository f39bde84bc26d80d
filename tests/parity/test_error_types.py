"""The mistakes of `test_errors.py`, made with PyTorch: it raises the kinds of exceptions that are expected there."""

from pathlib import Path
from typing import Any

import pytest

IMPORTS = "import ddpgrad as torch\nimport ddpgrad.nn.functional as F\nfrom ddpgrad import errors, nn\n"
THEIR_IMPORTS = (
    "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nfrom ddpgrad import errors\n"
)


def mistakes(of_torch: bool) -> dict[str, Any]:
    """The table of mistakes, made by ddpgrad or by PyTorch."""
    path = Path(__file__).parents[1] / "test_errors.py"
    source = path.read_text()
    assert IMPORTS in source
    if of_torch:
        source = source.replace(IMPORTS, THEIR_IMPORTS)
    names: dict[str, Any] = {"__name__": "mistakes", "__file__": str(path)}
    exec(compile(source, path, "exec"), names)
    return names["MISTAKES"]


THEIRS = mistakes(of_torch=True)


@pytest.mark.parametrize("name", THEIRS)
def test_kind(name: str):
    make, expected, _ = THEIRS[name]
    with pytest.raises(Exception) as caught:
        make()
    theirs = next(kind for kind in type(caught.value).__mro__ if kind.__module__ == "builtins")
    assert issubclass(expected, theirs), f"PyTorch raises {theirs.__name__}: {caught.value}"
