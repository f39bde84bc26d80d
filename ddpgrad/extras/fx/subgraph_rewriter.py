"""Finds the places of a graph that look like a pattern, and puts another graph in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...nn import Module
from .graph import Graph
from .graph_module import GraphModule, _copy_attr, has_attr
from .node import Node, map_aggregate
from .tracer import symbolic_trace


class Match(NamedTuple):
    """A place: its last node, and the node of the graph for each of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Any]


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Replace each place in `gm` that calls what `pattern` calls, and whose inner values nothing else uses.

    Arguments of the pattern stand for any value, the same one for the same argument; `replacement` takes the same
    arguments. Places do not overlap: of two that do, the first counts. Returns the places.
    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.replace_pattern
    """
    sought, wanted = _graph_of(pattern), _graph_of(replacement)
    for graph, source in ((sought, pattern), (wanted, replacement)):
        for node in graph.nodes:
            path = str(node.target)
            if (
                isinstance(source, Module)
                and node.op in ("call_module", "get_attr")
                and not has_attr(gm, path)
            ):
                _copy_attr(source, gm, path)
    matches: list[Match] = []
    replaced: dict[Node, Any] = {}  # nodes that are gone, by what is there now
    for node in list(gm.graph.nodes):
        found = _match(sought, node)
        gone = {node for match in matches for node in _inner(sought, match.nodes_map)}
        if found is None or any(each in gone for each in _inner(sought, found)):
            continue
        matches.append(Match(node, found))
    for match in matches:
        _put(gm.graph, sought, wanted, match, replaced)
    gm.recompile()
    return matches


def _graph_of(source: Any) -> Graph:
    if isinstance(source, GraphModule):
        return source.graph
    return source if isinstance(source, Graph) else symbolic_trace(source).graph


def _inner(pattern: Graph, nodes: dict[Node, Any]) -> list[Node]:
    """The nodes of a place that a replacement makes needless."""
    return [
        nodes[n] for n in pattern.nodes if n in nodes and n.op not in ("placeholder", "output", "get_attr")
    ]


def _match(pattern: Graph, anchor: Node) -> dict[Node, Any] | None:
    """The nodes of the graph for those of `pattern` if that ends with `anchor`."""
    (result,) = pattern.output_node().args
    ends = [result] if isinstance(result, Node) else [n for n in result or () if isinstance(n, Node)]
    if len(ends) != 1:
        raise NotImplementedError("replace_pattern: the pattern must return one value")
    found: dict[Node, Any] = {}
    if not _alike(ends[0], anchor, found):
        return None
    inside = set(_inner(pattern, found))
    for node in inside - {anchor}:
        if any(user not in inside for user in node.users):
            return None
    return found


def _alike(sought: Any, there: Any, found: dict[Node, Any]) -> bool:
    """Whether `there` looks like `sought`; what stands for what is added to `found`."""
    if isinstance(sought, Node):
        if sought in found:
            return found[sought] is there or (not isinstance(there, Node) and found[sought] == there)
        if sought.op == "placeholder":
            found[sought] = there
            return True
        if not isinstance(there, Node) or (there.op, there.target) != (sought.op, sought.target):
            return False
        found[sought] = there
        return _alike((sought.args, dict(sought.kwargs)), (there.args, dict(there.kwargs)), found)
    if isinstance(sought, (tuple, list)):
        same = isinstance(there, (tuple, list)) and len(sought) == len(there)
        return same and all(_alike(a, b, found) for a, b in zip(sought, there, strict=True))
    if isinstance(sought, dict):
        same = isinstance(there, dict) and sought.keys() == there.keys()
        return same and all(_alike(value, there[key], found) for key, value in sought.items())
    if isinstance(sought, slice):
        parts = lambda s: (s.start, s.stop, s.step)  # noqa: E731
        return isinstance(there, slice) and _alike(parts(sought), parts(there), found)
    return not isinstance(there, Node) and type(sought) is type(there) and sought == there


def _put(graph: Graph, pattern: Graph, replacement: Graph, match: Match, replaced: dict[Node, Any]) -> None:
    """Copy `replacement` to a place, and remove what was there."""

    def now(value: Any) -> Any:
        while isinstance(value, Node) and value in replaced:
            value = replaced[value]
        return value

    values: dict[Node, Any] = {}
    mine = [n for n in replacement.nodes if n.op == "placeholder"]
    for own, theirs in zip(mine, (n for n in pattern.nodes if n.op == "placeholder"), strict=True):
        values[own] = now(match.nodes_map.get(theirs))
    with graph.inserting_before(match.anchor):
        for node in replacement.nodes:
            if node.op not in ("placeholder", "output"):
                values[node] = graph.node_copy(node, lambda n: values[n])
    result = map_aggregate(
        replacement.output_node().args[0], lambda a: values[a] if isinstance(a, Node) else a
    )
    match.anchor.replace_all_uses_with(result)
    replaced[match.anchor] = result
    for node in reversed(_inner(pattern, match.nodes_map)):
        if not node.users:
            graph.erase_node(node)
