"""How a MaskedTensor is shown."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor


def shown(data: Tensor, mask: Tensor) -> str:
    """The `repr` of a MaskedTensor."""
    if not data.ndim:
        return f"MaskedTensor({_number(data.item()) if mask else '--'}, {bool(mask)})"
    return f"MaskedTensor(\n{_indented(_rows(data, mask))}\n)"


def _number(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _rows(data: Tensor, mask: Tensor) -> str:
    if data.ndim > 1:
        return "[\n" + ",\n".join(_indented(_rows(d, m)) for d, m in zip(data, mask, strict=True)) + "\n]"
    texts, there = [_number(value) for value in data.tolist()], mask.tolist()
    width = max((len(text) if kept else 8 for text, kept in zip(texts, there, strict=True)), default=0)
    return f"[{', '.join(t if kept else '--'.rjust(width) for t, kept in zip(texts, there, strict=True))}]"
