"""The version of this package, and of the PyTorch whose vocabulary it speaks."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

__version__ = "0.1.0"
vocabulary = "2.13.0"
"""The release of PyTorch that names, signatures and numbers are taken from."""

cuda: str | None = None
hip: str | None = None
debug = False
git_version = "unknown"

_FORM = re.compile(r"v?(\d+(?:\.\d+)*)([-_.]?(?:a|b|rc|alpha|beta|pre|dev)\w*)?(\+.*)?$")


def _key(version: Any) -> tuple[list[int], bool, bool]:
    """The numbers, whether it is a release, whether it is a build of its own. ValueError for what is no version."""
    text = (
        str(version)
        if isinstance(version, str) or hasattr(version, "release")
        else ".".join(map(str, version))
    )
    found = _FORM.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no version")
    numbers = [int(n) for n in found[1].split(".")]
    while numbers and not numbers[-1]:
        del numbers[-1]
    return numbers, not found[2], bool(found[3])


def _comparing(compare: Callable[[Any, Any], bool]) -> Any:
    def method(self: str, other: Any) -> bool:
        try:
            return compare(_key(self), _key(other))
        except (ValueError, TypeError):
            return compare(str(self), other)

    return method


class TorchVersion(str):
    """A version that is compared with others, with texts and with tuples of numbers; what is no version, as text.

    Source: torch.torch_version.TorchVersion.
    """

    __lt__, __le__ = _comparing(operator.lt), _comparing(operator.le)
    __gt__, __ge__ = _comparing(operator.gt), _comparing(operator.ge)
    __eq__, __ne__ = _comparing(operator.eq), _comparing(operator.ne)
    __hash__ = str.__hash__
