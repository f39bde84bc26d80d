"""Points of Sobol's sequence beside PyTorch's."""

import importlib

import pytest
import torch

import ddpgrad

pytest.importorskip("scipy")


def engine(library, *args, **options):
    return importlib.import_module(f"{library.__name__}.quasirandom").SobolEngine(*args, **options)


@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 3}, {"scramble": True}])
@pytest.mark.parametrize("dimension", [1, 3, 200])
def test_points(dimension, options):
    drawn = []
    for library in (torch, ddpgrad):
        library.manual_seed(1)
        points = engine(library, dimension, **options)
        made = [
            points.draw(1), points.draw(5), points.fast_forward(1000).draw(3, dtype=library.float64), points.reset().draw_base2(3),
            points.draw(out=library.empty(0)),
        ]  # fmt: skip
        drawn.append([(p.dtype.itemsize, p.tolist()) for p in made] + [repr(points), points.num_generated])
    assert drawn[0] == drawn[1]


def test_what_is_refused():
    for library in (torch, ddpgrad):
        for dimension in (0, 21202):
            with pytest.raises(ValueError, match="Supported range"):
                engine(library, dimension)
        with pytest.raises(ValueError, match="power of 2"):
            engine(library, 2).fast_forward(1).draw_base2(2)
