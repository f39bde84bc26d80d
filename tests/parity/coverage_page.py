"""The text of `docs/coverage.md`: what of PyTorch is here, and what is not and why."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from coverage_reasons import left_out_name

import ddpgrad

HEAD = """# Coverage

What of PyTorch {version} works here. This page is written by `python tests/parity/op_db.py --write docs/coverage.md`.

## Operators

Each entry of PyTorch's operator database runs in both libraries on the samples of the database: results, dtypes and
shared memory, gradients and second gradients (float64 and complex128 to 1e-10, float32 to 1e-5 of the largest element),
integers and bools, the method, the in-place form and `out=`. *Partial*: what is there agrees, and says what is not.

{line}
"""
NAMES = """
## Public names

A name is here when ddpgrad has an attribute of that name at the same place. What is not here has a reason, or is missing.
"""
PLACES = (
    "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data", "autograd",
    "autograd.functional", "func", "linalg", "special", "fft", "amp", "", "Tensor",
)  # fmt: skip
# Visible where they are only by an import.
ACCIDENTAL = {
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "DType",
    "GRID_SAMPLE_INTERPOLATION_MODES",
    "GRID_SAMPLE_PADDING_MODES",
    "ScalingType",
    "SwizzleType",
    "Tensor",
    "reproducibility_notes",
    "sparse_support_notes",
    "tf32_notes",
    "TYPE_CHECKING",
    "common_args",
    "common_notes",
    "factory_common_args",
    "multi_dim_common",
}
ORDER = ("wrong", "missing", "partial", "left out")


def page(results: Sequence[Any], line: str) -> str:
    """The whole page. results: of the operators; line: their summary."""
    parts = [HEAD.format(version=torch.__version__.partition("+")[0], line=line)]
    families: dict[str, list[Any]] = {}
    for result in results:
        family = result.name.rpartition(".")[0] if result.name.count(".") else ""
        families.setdefault(_family(family), []).append(result)
    for family, members in sorted(families.items()):
        parts.append(_operators(family, members))
    parts.append(NAMES)
    parts += [_names(place) for place in PLACES]
    return "\n".join(parts)


def _family(prefix: str) -> str:
    for family in ("nn.functional", "linalg", "special", "fft", "masked", "signal", "sparse"):
        if prefix.startswith(family):
            return f"torch.{family}"
    return "torch"


def _operators(family: str, members: Sequence[Any]) -> str:
    covered = [m.name for m in members if m.status == "covered"]
    lines = [f"### {family}: {len(covered)} of {len(members)}\n"]
    if covered:
        lines.append(f"Covered: {', '.join(covered)}.\n")
    others = sorted(
        (m for m in members if m.status != "covered"), key=lambda m: (ORDER.index(m.status), m.detail)
    )
    return "\n".join(lines) + _table([(m.name, m.status, m.detail) for m in others])


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Rows of (name, status, why), names of one status and reason together."""
    if not rows:
        return ""
    together: dict[tuple[str, str], list[str]] = {}
    for name, status, why in rows:
        together.setdefault((status, why.replace("|", "\\|")), []).append(name)
    lines = [f"| {status} | {', '.join(names)} | {why} |" for (status, why), names in together.items()]
    return "\n".join(["\n| | | |\n|---|---|---|", *lines, ""])


def public_names(place: str) -> list[str]:
    """The classes and functions that PyTorch shows at `place`; modules and what begins with `_` do not count."""
    owner: Any = torch
    for part in place.split(".") if place else ():
        owner = getattr(owner, part)
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in getattr(owner, "__all__", dir(owner)):
            value = getattr(owner, name, None)
            if name.startswith("_") or name in ACCIDENTAL or inspect.ismodule(value) or _is_foreign(value):
                continue
            names.append(name)
    return sorted(names)


def _is_foreign(value: Any) -> bool:
    """Whether `value` comes from typing or the standard library and is only visible by accident."""
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and not module.startswith("torch") and module != "builtins"


def _names(place: str) -> str:
    ours: Any = ddpgrad
    for part in place.split(".") if place else ():
        ours = getattr(ours, part, None)
    names = public_names(place)
    here = [n for n in names if hasattr(ours, n)]
    rows = []
    for name in names:
        if name not in here:
            reason = left_out_name(place, name)
            rows.append((name, "missing" if reason is None else "left out", reason or ""))
    rows.sort(key=lambda row: (ORDER.index(row[1]), row[2]))
    title = f"torch.{place}" if place else "torch"
    text = f"### {title}: {len(here)} of {len(names)}\n\n"
    if here:
        text += f"Here: {', '.join(here)}.\n"
    return text + _table(rows)
