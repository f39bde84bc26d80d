"""A profile as text, with PyTorch's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SCALES = {"s": 1e6, "ms": 1e3, "us": 1.0}


def duration(us: float, unit: str | None = None) -> str:
    """Microseconds with a unit: the given one, or the largest of which there is at least one."""
    chosen = unit or next((name for name, scale in _SCALES.items() if us >= scale), "us")
    if chosen not in _SCALES:
        raise ValueError(f"time_unit must be one of {', '.join(_SCALES)}, got {unit!r}")
    return f"{us / _SCALES[chosen]:.3f}{chosen}"


def size(count: float) -> str:
    """Bytes with a unit."""
    for name, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= scale:
            return f"{count / scale:.2f} {name}"
    return f"{count:.0f} B"


def _cut(text: str, width: int) -> str:
    return text if width < 0 or len(text) <= width else text[: max(width - 3, 0)] + "..."


def table(
    rows: Sequence[Any],
    total: float,
    *,
    limit: int,
    widths: tuple[int, int, int],
    header: str | None,
    unit: str | None,
    memory: bool,
    flops: bool,
) -> str:
    """`rows` with their share of `total` microseconds. widths: of names, shapes and source lines at most."""
    shown = rows if limit < 0 else rows[:limit]
    with_shapes = any(row.input_shapes for row in rows)
    with_stack = any(row.stack for row in rows)
    names = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    names += ["CPU Mem", "Self CPU Mem"] * memory + ["# of Calls"]
    names += ["Input Shapes"] * with_shapes + ["Source Location"] * with_stack + ["Total MFLOPs"] * flops
    lines: list[list[str]] = []
    for row in shown:
        cells = [_cut(row.key, widths[0]), _share(row.self_cpu_time_total, total)]
        cells += [duration(row.self_cpu_time_total, unit), _share(row.cpu_time_total, total)]
        cells += [duration(row.cpu_time_total, unit), duration(row.cpu_time, unit)]
        cells += [size(row.cpu_memory_usage), size(row.self_cpu_memory_usage)] if memory else []
        cells.append(str(row.count))
        cells += [_cut(str(row.input_shapes), widths[1])] if with_shapes else []
        cells += [_cut(row.stack[0] if row.stack else "", widths[2])] if with_stack else []
        cells += [f"{row.flops / 1e6:.3f}" if row.flops else "--"] if flops else []
        lines.append(cells)
    columns = [max(12, len(name), *(len(line[i]) for line in lines)) for i, name in enumerate(names)]
    rule = "  ".join("-" * width for width in columns)
    text = ["=" * len(rule), header] if header else []
    text += [
        rule,
        *("  ".join(cell.rjust(columns[i]) for i, cell in enumerate(line)) for line in [names]),
        rule,
    ]
    text += ["  ".join(cell.rjust(columns[i]) for i, cell in enumerate(line)) for line in lines]
    return "\n".join([*text, rule, f"Self CPU time total: {duration(total, unit)}", ""])


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "--"
