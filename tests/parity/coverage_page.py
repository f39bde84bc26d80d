"""The text of `docs/coverage.md`: what of PyTorch is here, and what is not and why."""

import inspect
import warnings
from collections.abc import Sequence
from textwrap import TextWrapper
from typing import Any

import torch
import torch.distributed.checkpoint.format_utils
import torch.distributed.checkpoint.state_dict
import torch.distributions
from coverage_reasons import left_out_name

import ddpgrad

HEAD = """# Coverage

What of PyTorch {version} works here. This page is written by `python tests/parity/op_db.py --write docs/coverage.md`.

## Operators

Each entry of PyTorch's operator database that is not left out runs in both libraries on the samples of the database:
results, dtypes and shared memory, gradients and second gradients (float64 and complex128 to 1e-10, float32 to 1e-5 of the
largest element), integers and bools, the method, the in-place form and `out=`. *Partial*: what is there agrees, and what
is not there is named.

{line}
"""
NAMES = """
## Public names

A name is here when ddpgrad has an attribute of that name at the same place; some, such as `ScriptModule`, are there in
name only, and say so when they are used. What is not here has a reason, or is missing.
"""
PLACES = (
    "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data", "autograd",
    "autograd.functional", "func", "linalg", "special", "fft", "amp", "distributions", "distributions.constraints",
    "distributions.transforms", "distributed.checkpoint", "distributed.checkpoint.state_dict",
    "distributed.checkpoint.format_utils", "", "Tensor",
)  # fmt: skip
# Visible where they are only by an import.
ACCIDENTAL = {
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "DType",
    "GRID_SAMPLE_INTERPOLATION_MODES", "GRID_SAMPLE_PADDING_MODES", "ScalingType", "SwizzleType", "Tensor",
    "reproducibility_notes", "sparse_support_notes", "tf32_notes", "TYPE_CHECKING", "common_args",
    "common_notes", "factory_common_args", "multi_dim_common",
}  # fmt: skip
SHORT = 30  # names in one item
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
    prefix = f"{family.removeprefix('torch').lstrip('.')}."
    covered = [m.name.removeprefix(prefix) for m in members if m.status == "covered"]
    lines = [f"### {family}: {len(covered)} of {len(members)}\n"]
    if covered:
        lines.append(_listed("Covered", covered))
    others = sorted(
        (m for m in members if m.status != "covered"), key=lambda m: (ORDER.index(m.status), m.detail)
    )
    return "\n".join(lines) + _table([(m.name.removeprefix(prefix), m.status, m.detail) for m in others])


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Rows of (name, status, why), names of one status and reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, status, why in rows:
        together.setdefault((status, f"without {why}" if status == "partial" else why), []).append(name)
    items = [
        _item(f"*{status}*{f', {why}' if why else ''}:", names) for (status, why), names in together.items()
    ]
    return "\n".join(["\nThe others:\n", *items, ""]) if items else ""


def _listed(head: str, names: Sequence[str]) -> str:
    """The names in order, an item for each first letter where they are many."""
    ordered = sorted(set(names), key=str.lower)
    if len(ordered) <= SHORT:
        return _wrapped(f"{head}: {_joined(ordered)}.") + "\n"
    found: dict[str, list[str]] = {}
    for name in ordered:
        found.setdefault(name.lstrip("_")[:1].lower(), []).append(name)
    return f"{head}:\n\n" + "".join(_item(f"**{letter}**", found[letter]) + "\n" for letter in sorted(found))


def _item(head: str, names: Sequence[str]) -> str:
    return _wrapped(f"{head} {_joined(names)}", "- ", "  ")


def _joined(names: Sequence[str]) -> str:
    # What begins with an underscore would be taken for emphasis.
    return ", ".join(f"`{name}`" if name.startswith("_") else name for name in names)


def _wrapped(text: str, first: str = "", others: str = "") -> str:
    """`text` in lines that are read without scrolling."""
    wrap = TextWrapper(120, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return wrap.fill(text)


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
    return sorted(set(names))


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
        text += _listed("Here", here)
    return text + _table(rows)
