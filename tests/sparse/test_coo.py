"""Sparse tensors against dense ones: whatever is defined for both gives the same elements and gradients."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch

SHAPE = (3, 4)


@st.composite
def sparse(draw: st.DrawFn) -> torch.Tensor:
    """A sparse tensor of SHAPE, with dense dimensions or without, whose places may occur several times."""
    sparse_dim, count = draw(st.integers(1, 2)), draw(st.integers(0, 8))
    places = [
        draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)) for n in SHAPE[:sparse_dim]
    ]
    dense = SHAPE[sparse_dim:]
    size = count * int(np.prod(dense))
    values = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    indices = torch.tensor(places, dtype=torch.int64).reshape(sparse_dim, count)
    return torch.sparse_coo_tensor(
        indices, torch.tensor(values, dtype=torch.float64).reshape(count, *dense), SHAPE
    )


def added(t: torch.Tensor) -> np.ndarray:
    """What a sparse tensor holds, added up by NumPy."""
    out = np.zeros(t.shape)
    np.add.at(out, tuple(t._indices().numpy()), t._values().numpy())
    return out


@settings(max_examples=60)
@given(sparse(), st.data())
def test_sums_products_and_layouts_are_those_of_the_elements(s: torch.Tensor, data: st.DataObject) -> None:
    dense = added(s)
    whole = s.coalesce()
    places = whole.indices().numpy()
    keys = np.ravel_multi_index(tuple(places), SHAPE[: s.sparse_dim()])
    assert (np.diff(keys) > 0).all() and whole.coalesce() is whole
    other = data.draw(sparse().filter(lambda o: o.sparse_dim() == s.sparse_dim()))
    full = torch.arange(12.0, dtype=torch.float64).reshape(SHAPE)
    picked = torch.tensor([2, 0, 2])
    pairs: list[tuple[torch.Tensor, np.ndarray]] = [
        (s, dense),
        (whole, dense),
        (s + other, dense + added(other)),
        (s - other, dense - added(other)),
        (whole + other.coalesce(), dense + added(other)),
        (s * other, dense * added(other)),
        (s * full, dense * full.numpy()),
        (full + s, full.numpy() + dense),
        (full - s * 2, full.numpy() - dense * 2),
        (-s / 4, -dense / 4),
        (s.index_select(0, picked), dense[[2, 0, 2]]),
        (s.index_select(1, picked), dense[:, [2, 0, 2]]),
        (s[1], dense[1]),
        (s[..., 2], dense[..., 2]),
        (s[1:, :3], dense[1:, :3]),
        (torch.sparse.sum(s, 0), dense.sum(0)),
        (s.sum(), dense.sum()),
        (torch.cat([s, other]), np.concatenate([dense, added(other)])),
        (torch.stack([s, other], 0), np.stack([dense, added(other)])),
        (full.sparse_mask(s), full.numpy() * (np.isin(np.arange(12).reshape(SHAPE), _stored(whole)))),
        (torch.tensor(dense).to_sparse(), dense),
        (torch.tensor(dense).to_sparse(1), dense),
        (s.float().abs(), abs(dense)),
    ]
    if s.sparse_dim() == 2:
        pairs += [
            (s.t(), dense.T),
            (s.t() @ full, dense.T @ full.numpy()),
            (s @ other.t(), dense @ added(other).T),
        ]
    for number, (got, expected) in enumerate(pairs):
        np.testing.assert_array_equal(got.to_dense().numpy(), expected, str(number))
    target = full.clone()
    assert target.add_(s, alpha=2) is target
    np.testing.assert_array_equal(target.numpy(), full.numpy() + 2 * dense)


def _stored(whole: torch.Tensor) -> np.ndarray:
    """The numbers of the elements that a coalesced tensor of SHAPE has stored."""
    numbers = np.arange(12).reshape(SHAPE)
    return numbers[tuple(whole.indices().numpy())].reshape(-1)


def test_gradients_reach_the_values() -> None:
    places = torch.tensor([[0, 1, 1], [2, 0, 0]])
    weight = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).requires_grad_()
    values = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64, requires_grad=True)

    def through(function: Any) -> Any:
        return lambda v, w: function(torch.sparse_coo_tensor(places, v, (2, 3)), w)

    functions = [
        lambda s, w: s.to_dense() * 2,
        lambda s, w: s.coalesce().values(),
        lambda s, w: (s * 3 + s).coalesce().to_dense().pow(2),
        lambda s, w: torch.sparse.mm(s, w),
        lambda s, w: torch.mm(s, w).pow(2),
        lambda s, w: torch.sparse.addmm(w[:2], s, w, beta=2, alpha=3),
        lambda s, w: torch.sparse.sum(s, 1).to_dense(),
        lambda s, w: torch.sparse.softmax(s, 1).to_dense(),
        lambda s, w: torch.sparse.log_softmax(s, 0).to_dense(),
        lambda s, w: s.t().to_dense() * w.sum(),
        lambda s, w: w.t().sparse_mask(s).to_dense() * w.t(),
        lambda s, w: (w.t() * 2 + s).pow(2),
    ]
    for function in functions:
        assert torch.autograd.gradcheck(through(function), (values, weight))
    assert torch.autograd.gradgradcheck(through(functions[3]), (values, weight))


def test_what_a_sparse_leaf_gets() -> None:
    s = torch.eye(3).to_sparse().requires_grad_()
    torch.sparse.mm(s, torch.ones(3, 2)).sum().backward()
    assert s.grad is not None and s.grad.is_sparse and s.grad._nnz() == 3
    assert s.grad.to_dense().tolist() == (torch.eye(3) * 2).tolist()
    (s * 2).to_dense().sum().backward()
    assert s.grad.to_dense().tolist() == (torch.eye(3) * 4).tolist()


def test_kinds_and_parts() -> None:
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [[1.0, 2.0]] * 3, (2, 3, 2))
    assert s.is_sparse and s.layout is torch.sparse_coo and torch.ones(1).layout is torch.strided
    assert (s.sparse_dim(), s.dense_dim(), s._nnz(), s.is_coalesced()) == (2, 1, 3, False)
    assert tuple(s.shape) == (2, 3, 2) and s.numel() == 12 and s.dtype is torch.float32 and not s.is_cuda
    whole = s.coalesce()
    assert whole.is_coalesced() and whole._nnz() == 2 and whole.values().tolist() == [[1.0, 2.0], [2.0, 4.0]]
    whole.values().mul_(2)  # its own memory
    assert whole.to_dense()[0, 2].tolist() == [2.0, 4.0]
    whole.mul_(2)
    assert whole._values().tolist() == [[4.0, 8.0], [8.0, 16.0]]
    assert whole.zero_()._nnz() == 0 and not whole.to_dense().any()
    for make in (torch.zeros, torch.empty):
        empty = make(2, 3, layout=torch.sparse_coo, dtype=torch.float64)
        assert empty.is_sparse and empty._nnz() == 0 and empty.dtype is torch.float64
    assert torch.zeros_like(s).is_sparse and torch.sparse_coo_tensor((2, 3))._nnz() == 0
    assert s.transpose(0, 1).shape == (3, 2, 2) and s.detach().is_sparse
    assert torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (1,)).item() == 3.0
    with torch.sparse.check_sparse_tensor_invariants():
        assert torch.sparse.check_sparse_tensor_invariants.is_enabled()


def test_a_batch_of_sparse_matrices_is_multiplied_matrix_by_matrix() -> None:
    s = torch.sparse_coo_tensor([[0, 1, 0], [2, 1, 0], [0, 3, 1]], torch.tensor([1.0, 2.0, 3.0]), (2, 3, 4))
    dense = torch.arange(40.0).reshape(2, 4, 5).requires_grad_()
    x, weights = s.coalesce().requires_grad_(), torch.arange(30.0).reshape(2, 3, 5)
    (torch.bmm(x, dense) * weights).sum().backward()
    whole, other = s.to_dense().requires_grad_(), dense.detach().clone().requires_grad_()
    (torch.bmm(whole, other) * weights).sum().backward()
    torch.testing.assert_close(torch.bmm(s, dense), torch.bmm(whole, other))
    torch.testing.assert_close(x.grad.to_dense(), whole.grad)
    torch.testing.assert_close(dense.grad, other.grad)
    with pytest.raises(RuntimeError, match="a sparse batch of matrices"):
        s @ torch.ones(4, 5)


def test_a_program_may_say_that_places_are_in_order() -> None:
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (2,))
    assert not s.is_coalesced() and s._coalesced_(True) is s and s.is_coalesced()


def test_others_of_its_kind_by_the_former_names() -> None:
    s = torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 3), (5, 3))
    other = s.new(s._indices(), torch.full((2, 3), 2.0), s.size())
    assert other.is_sparse and torch.equal(other.to_dense(), s.to_dense() * 2)
    nothing = s.new().resize_as_(s)
    assert nothing.shape == s.shape and nothing._nnz() == 0 and (nothing + s).to_dense().sum() == 6
    assert s.new(2, 3).shape == s.new(torch.Size([2, 3])).shape == (2, 3)
    with pytest.raises(RuntimeError, match="without elements"):
        s.clone().resize_as_(other)


def test_diagonals_stand_in_their_columns() -> None:
    rows = torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_()
    s = torch.sparse.spdiags(rows, torch.tensor([0, 1]), (2, 4))
    assert s.to_dense().tolist() == [[1, 5, 0, 0], [0, 2, 6, 0]]
    assert s._indices().tolist() == [[0, 1, 0, 1], [0, 1, 1, 2]]
    s.to_dense().sum().backward()
    assert rows.grad is not None and rows.grad.tolist() == [[1, 1, 0], [0, 1, 1]]
    below = torch.sparse.spdiags(torch.ones(2), torch.tensor(-1), (3, 3), torch.sparse_csr)
    assert below.crow_indices().tolist() == [0, 0, 1, 2] and below.col_indices().tolist() == [0, 1]
    for offsets, text in (([0, 0], "duplicate"), ([0], "does not match"), ([0.0, 1.0], "dtype Long")):
        with pytest.raises(RuntimeError, match=text):
            torch.sparse.spdiags(rows, torch.tensor(offsets), (2, 4))


def test_16_bit_values_are_added_in_float32() -> None:
    values = torch.tensor([2048.0, 1.0, 1.0], dtype=torch.float16)
    assert torch.sparse_coo_tensor([[0, 0, 0]], values, (1,)).coalesce().values().tolist() == [2050.0]


@pytest.mark.parametrize("coalesced", [False, True])
def test_pickles_copies_and_files(coalesced: bool) -> None:
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3), requires_grad=True)
    s = s.detach().coalesce() if coalesced else s
    buffer = io.BytesIO()
    torch.save({"s": s, "p": torch.nn.Parameter(s)}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert isinstance(loaded["p"], torch.nn.Parameter) and loaded["p"].requires_grad
    for again in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), loaded["s"], loaded["p"]):
        assert again.is_sparse and again.is_coalesced() is coalesced
        assert again.to_dense().tolist() == s.to_dense().tolist()
    assert pickle.loads(pickle.dumps(s)).requires_grad is s.requires_grad


PLACES, V = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
S, D = torch.sparse_coo_tensor(PLACES, V, (2, 2)), torch.ones(2, 2)
ERRORS: list[tuple[Any, type[Exception], str]] = [
    (lambda: torch.sparse_coo_tensor(PLACES, V, (1, 2)), RuntimeError, "for dim 0, size is 1 but found index 1"),
    (lambda: torch.sparse_coo_tensor(-PLACES, V), RuntimeError, "found negative index -1 for dim 0"),
    (lambda: torch.sparse_coo_tensor(PLACES, torch.ones(3)), RuntimeError, "must have same nnz"),
    (lambda: torch.sparse_coo_tensor(PLACES, V, (2, 2, 3)), RuntimeError, "'len"),
    (lambda: torch.sparse_coo_tensor(PLACES, torch.ones(2, 4), (2, 2, 3)), RuntimeError, r"expected \[2, 3\]"),
    (lambda: torch.sparse_coo_tensor(PLACES[0], V), RuntimeError, "must be sparse_dim x nnz"),
    (lambda: torch.sparse_coo_tensor(PLACES.flip(1), V, is_coalesced=True), RuntimeError, "cannot set is_coalesced"),
    (lambda: S.values(), RuntimeError, "Cannot get values on an uncoalesced tensor"),
    (lambda: D.indices(), RuntimeError, "indices expected sparse coordinate tensor layout but got Strided"),
    (lambda: D.sparse_mask(D), RuntimeError, "expected sparse"),
    (lambda: S + D, RuntimeError, r"add\(sparse, dense\) is not supported"),
    (lambda: S + torch.sparse_coo_tensor((2, 3)), RuntimeError, "size of tensor a"),
    (lambda: D.copy_(S), RuntimeError, "copy_.. between dense and sparse"),
    (lambda: S.numpy(), TypeError, "can't convert Sparse layout tensor to numpy"),
    (lambda: S.untyped_storage(), NotImplementedError, "Cannot access storage"),
    (lambda: S.to_sparse(layout=torch.strided), RuntimeError, "expected a sparse layout"),
    (lambda: torch.ones(2, layout=torch.sparse_coo), NotImplementedError, "ones"),
    (lambda: torch.rand(2, layout=torch.sparse_coo), NotImplementedError, "rand"),
    (lambda: torch.sparse.mm(S, D, "mean"), RuntimeError, "reduce='mean' expects a CSR"),
    (lambda: torch.sparse.sum(D), RuntimeError, "expected layout torch.sparse_coo"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "error", "message"), ERRORS)
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("exp", ()), ("eq", (S,)), ("maximum", (D,)), ("reshape", (4,)), ("mean", ()), ("cumsum", (0,)), ("fill_", (2.0,)),
     ("gather", (0, PLACES)), ("softmax", (0,)), ("sort", ()), ("where", (D > 0, D)), ("median", ()), ("logical_and", (S,)),
     ("masked_fill", (D > 0, 1.0)), ("clamp", (0.0,)), ("expand", (3, 2, 2)), ("diagonal", ()), ("index_add", (0, PLACES[0], D)),
     ("__getitem__", (PLACES[0],))],
)  # fmt: skip
def test_an_op_without_a_meaning_for_sparse_tensors_says_so(name: str, arguments: Any) -> None:
    with pytest.raises(NotImplementedError, match="sparse"):
        getattr(S.coalesce(), name)(*arguments)


def test_a_dense_op_refuses_a_sparse_operand() -> None:
    for name in ("maximum", "eq", "div", "atan2", "bmm", "dot", "lerp"):
        function = getattr(torch, name)
        with pytest.raises(RuntimeError):  # NotImplementedError is one
            function(D, S) if name != "lerp" else function(D, S, 0.5)
    with pytest.raises(NotImplementedError, match="sparse"):
        D[0, 0] = S
    with pytest.raises(NotImplementedError, match="sparse"):
        torch.cat([D, D, S])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.relu() * 2, lambda x: torch.cat([x, x]), lambda x: torch.stack([x, x], 1), lambda x: x.unsqueeze(0),
    ],
    ids=["relu", "cat", "stack", "unsqueeze"],
)  # fmt: skip
def test_gradients_of_functions_that_move_places(function: Any) -> None:
    dense = torch.tensor([[0.0, 0.0, -3.0], [4.0, 0.0, 5.0]])
    sparse, whole = dense.to_sparse().requires_grad_(), dense.clone().requires_grad_()
    got, expected = function(sparse), function(whole)
    assert torch.equal(got.to_dense(), expected)
    got.to_dense().sum().backward()
    expected.sum().backward()
    assert sparse.grad is not None and whole.grad is not None
    assert torch.equal(sparse.grad.to_dense(), whole.grad * (dense != 0))


def test_parts_and_sums_keep_their_dimensions() -> None:
    dense = torch.tensor([[0.0, 0.0, -3.0], [4.0, 0.0, 5.0]])
    for function in (
        lambda x: torch.narrow_copy(x, 1, 1, 2),
        lambda x: x.sum(0, keepdim=True),
        lambda x: x.nan_to_num(),
    ):
        assert torch.equal(function(dense.to_sparse()).to_dense(), function(dense))
