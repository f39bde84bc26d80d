"""`visualize_sharding`: which rank has which rows and columns.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html#debugging
"""

from __future__ import annotations

import numpy as np

from ..dtensor import DTensor
from ..placements import spans_of


def visualize_sharding(dtensor: DTensor, header: str = "", use_rich: bool = False) -> None:
    """Print a table of the ranks that have each part of `dtensor`, which has one or two dimensions.

    The first rank of its mesh prints it, and none where there are no elements. header, use_rich: without effect, as there is
    no picture in colours.
    """
    if not dtensor.numel():
        return
    if dtensor.ndim > 2:
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    mesh = dtensor.device_mesh
    here = mesh.get_coordinate()
    if here is None or any(here):
        return
    ranks: dict[tuple[str, str], list[int]] = {}
    starts: dict[str, int] = {}
    for place, rank in np.ndenumerate(mesh.mesh.numpy()):
        spans = [*spans_of(dtensor.placements, dtensor.shape, mesh, place), (0, 1)][:2]
        names = [
            f"{kind} {start}-{stop - 1}" for kind, (start, stop) in zip(("Row", "Col"), spans, strict=True)
        ]
        starts.update({name: start for name, (start, _) in zip(names, spans, strict=True)})
        ranks.setdefault((names[0], names[1]), []).append(int(rank))
    rows = sorted({row for row, _ in ranks}, key=lambda name: (starts[name], name))
    columns = sorted({column for _, column in ranks}, key=lambda name: (starts[name], name))
    cells = [["", *columns]]
    for row in rows:
        found = [",".join(map(str, ranks.get((row, column), ()))) for column in columns]
        cells.append([row, *[f"{mesh.device_type}:{told}" if told else "" for told in found]])
    print(_table(cells))


def _table(cells: list[list[str]]) -> str:
    """The cells below one another, the first row above a line."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = [
        widths[0],
        *[max(width, 2 + len(name)) for width, name in zip(widths[1:], cells[0][1:], strict=True)],
    ]
    head, *rest = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([head, "  ".join("-" * width for width in widths), *rest])
