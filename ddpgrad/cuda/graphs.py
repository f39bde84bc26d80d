"""CUDA graphs, which are refused with a reason."""

from __future__ import annotations

from ..compat.absent import Part, stand_ins

CUDAGraph, graph, graph_pool_handle, make_graphed_callables = stand_ins(
    "cuda",
    Part(
        "steps are not recorded as CUDA graphs",
        "CUDAGraph graph graph_pool_handle make_graphed_callables",
    ),
).values()
