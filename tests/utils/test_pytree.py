"""Trees by PyTorch's names."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import ddpgrad as torch
from ddpgrad.utils import _pytree as pytree

Point = namedtuple("Point", "x y")
TREE = {
    "a": [1, (2, None)],
    "b": OrderedDict(z=3, y=Point(4, [5])),
    "c": defaultdict(list, k=6),
    "d": deque([7], maxlen=3),
}


def test_a_tree_comes_back_with_its_types_and_its_order():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4, 5, 6, 7] == list(pytree.tree_iter(TREE))
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE and list(again) == list(TREE)
    assert type(again["b"]) is OrderedDict and type(again["b"]["y"]) is Point
    assert again["c"].default_factory is list and again["d"].maxlen == 3
    assert spec == pytree.tree_structure(again) != pytree.tree_structure([1])
    assert spec.num_leaves == 8 and pytree.tree_structure(1).is_leaf()
    with pytest.raises(ValueError, match="holds 8 items"):
        pytree.tree_unflatten([1], spec)


def add_up(x, y):
    return x + y


def test_map_over_several_trees_finds_other_shapes():
    add = pytree.tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"b": [20], "a": 10})
    assert add == {"a": 11, "b": [22]}
    assert pytree.tree_map(lambda x, part: (x, part), [1, 2], [[3], (4, 5)]) == [(1, [3]), (2, (4, 5))]
    with pytest.raises(ValueError, match="Node type mismatch"):
        pytree.tree_map(lambda x, y: x, [1, [2]], [1, 2])
    with pytest.raises(ValueError, match="arity"):
        pytree.tree_map(lambda x, y: x, [1, 2], [1])
    with pytest.raises(ValueError, match="keys mismatch"):
        pytree.tree_map(lambda x, y: x, {"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="context"):
        pytree.tree_map(lambda x, y: x, deque([1]), deque([1], maxlen=2))
    assert pytree.tree_map(add_up, OrderedDict(a=1), {"a": 2}) == OrderedDict(a=3)


def test_leaves_may_be_chosen():
    assert pytree.tree_leaves([(1, 2), [3]], is_leaf=lambda t: isinstance(t, tuple)) == [(1, 2), 3]
    assert pytree.tree_map_only(int, str, [1, "a", (2.0,)]) == ["1", "a", (2.0,)]
    assert pytree.tree_map_only(lambda x: x == 1, str, [1, 2]) == ["1", 2]
    assert pytree.tree_all(bool, [1, (2,)]) and not pytree.tree_any(bool, [0, {"a": 0}])


def test_paths_lead_to_leaves():
    for path, leaf in pytree.tree_leaves_with_path(TREE):
        assert pytree.key_get(TREE, path) == leaf or "y" in pytree.keystr(path)
    (path, _), *_ = pytree.tree_leaves_with_path({"a": [0, 1]})
    assert pytree.keystr(path) == "['a'][0]"
    assert pytree.tree_map_with_path(lambda p, x: f"{pytree.keystr(p)}={x}", [5]) == ["[0]=5"]


def test_a_registered_class_is_a_container_and_its_subclass_is_a_leaf():
    class Box:
        def __init__(self, inside):
            self.inside = inside

    class Other(Box):
        pass

    pytree.register_pytree_node(Box, lambda b: ([b.inside], None), lambda c, _: Box(*c))
    try:
        assert pytree.tree_map(lambda x: x + 1, [Box(1)])[0].inside == 2
        assert pytree.tree_is_leaf(Other(1)) and not pytree.tree_is_leaf(Box(1))
        with pytest.raises(ValueError, match="already registered"):
            pytree.register_pytree_node(Box, None, None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="flatten_with_keys_fn"):
            pytree.tree_leaves_with_path(Box(1))
    finally:
        del pytree.SUPPORTED_NODES[Box]


def test_other_containers_and_questions_about_leaves():
    @dataclasses.dataclass
    class Pair:
        first: int
        second: object

    @dataclasses.dataclass(frozen=True)
    class Word:
        text: str

    pytree.register_dataclass(Pair)
    pytree.register_constant(Word)
    try:
        assert pytree.tree_map(lambda x: -x, Pair(1, [2])) == Pair(-1, [-2])
        assert pytree.keystr(pytree.tree_leaves_with_path(Pair(1, [2]))[1][0]) == ".second[0]"
        assert pytree.tree_leaves([Word("a"), 1]) == [1]
        assert pytree.tree_structure(Word("a")) != pytree.tree_structure(Word("b"))
        assert pytree.tree_map(str, Word("a")) == Word("a")
    finally:
        del pytree.SUPPORTED_NODES[Pair], pytree.SUPPORTED_NODES[Word]
    assert pytree.tree_leaves(torch.Size([2, 3])) == [2, 3] == pytree.arg_tree_leaves(2, x=[3])
    assert pytree.keystr(pytree.tree_leaves_with_path(Point(1, 2))[1][0]) == ".y"
    assert pytree.tree_any_only(int, bool, ["a", 1]) and not pytree.tree_all_only(int, bool, ["", 0])
    shape = pytree.tree_structure([1, (2, 3)])
    assert pytree._broadcast_to_and_flatten([5, 6], shape) == [5, 6, 6]
    assert pytree._broadcast_to_and_flatten([[5], 6], shape) is None
    assert pytree.treespec_pprint(shape) == "[*, (*, *)]"
    assert repr(shape) == "TreeSpec(list, None, [*,\n  TreeSpec(tuple, None, [*,\n    *])])"
