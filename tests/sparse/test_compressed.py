"""Matrices stored by rows or columns, in blocks or not, against dense ones; and the errors of their making."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch

LAYOUTS = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
BLOCKS = LAYOUTS[2:]
D = torch.tensor([[0.0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 5]], dtype=torch.float64)
C = D.to_sparse_csr()


def in_layout(dense: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    return dense.to_sparse(layout=layout, blocksize=(2, 1) if layout in BLOCKS else None)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_batches_of_matrices(layout: torch.layout) -> None:
    dense = torch.tensor([[[0.0, 1, 2], [0, 0, 3]], [[4, 0, 0], [5, 6, 0]]], dtype=torch.float64)
    x = dense.clone().requires_grad_()
    b = x.to_sparse(layout=layout)
    assert (b.shape, b._nnz(), b.sparse_dim(), b.dense_dim()) == ((2, 2, 3), 3, 2, 0)
    starts, places = (
        (b.crow_indices(), b.col_indices())
        if layout is torch.sparse_csr
        else (b.ccol_indices(), b.row_indices())
    )
    assert starts.shape == (2, dense.shape[1 if layout is torch.sparse_csr else 2] + 1)
    assert places.shape == b.values().shape == (2, 3)
    made = torch.sparse_compressed_tensor(starts, places, b.values().detach(), layout=layout)
    assert made[1].layout is layout and b.transpose(1, 2).layout is not layout
    full = dense + 1
    pairs = [
        (b, dense),
        (made, dense),
        (made[1], dense[1]),
        (made[1, 0], dense[1, 0]),
        (made.transpose(1, 2), dense.transpose(1, 2)),
        (made.sin(), dense.sin()),
        (made * 2, dense * 2),
        (made * full, dense * full),
        (made + made, dense * 2),
        (made.sum(), dense.sum()),
        (made @ full.mT, dense @ full.mT),
        (made.to_sparse_coo(), dense),
        (made.clone().zero_(), dense * 0),
        (made.to(torch.float32), dense.float()),
    ]
    for number, (got, expected) in enumerate(pairs):
        torch.testing.assert_close(got.to_dense(), expected, msg=lambda m, n=number: f"{n}: {m}")
    (b * 2).to_dense().pow(2).sum().backward()
    torch.testing.assert_close(x.grad, 8 * dense)
    (grad,) = torch.autograd.grad((x.to_sparse(layout=layout) @ full.mT).sum(), x)
    torch.testing.assert_close(grad, full.sum(1, keepdim=True).expand_as(dense))
    loaded = pickle.loads(pickle.dumps(made))
    torch.testing.assert_close(loaded, made)
    values = made.values().clone().requires_grad_()
    again = torch.sparse_compressed_tensor(starts, places, values, (2, 2, 3), layout=layout)
    again.to_dense().pow(2).sum().backward()
    torch.testing.assert_close(values.grad, 2 * made.values())


@st.composite
def matrices(draw: st.DrawFn) -> torch.Tensor:
    rows, columns = draw(st.integers(0, 3)) * 2, draw(st.integers(0, 5))
    elements = draw(
        st.lists(st.sampled_from([0, 0, 0, 1, 2, -3]), min_size=rows * columns, max_size=rows * columns)
    )
    return torch.tensor(elements, dtype=torch.float64).reshape(rows, columns)


@settings(max_examples=60)
@given(matrices(), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
def test_elements_are_those_of_the_dense_matrix(
    dense: torch.Tensor, layout: torch.layout, other: torch.layout
) -> None:
    c = in_layout(dense, layout)
    rows, columns = dense.shape
    full = torch.arange(float(rows * columns), dtype=torch.float64).reshape(rows, columns) - 2
    assert c.layout is layout and not c.is_sparse and c.is_sparse_csr is (layout is torch.sparse_csr)
    pairs = [
        (c, dense),
        (c.to_sparse(), dense),
        (c.t(), dense.t()),
        (c.t() @ full, dense.t() @ full),
        (full.t() @ c, full.t() @ dense),
        (c @ full[0], dense @ full[0]) if rows else (c, dense),
        (c + c, dense * 2),
        (c + in_layout(full, layout), dense + full),
        (full + c, full + dense),
        (c.add(in_layout(full, layout), alpha=2), dense + full * 2),
        (c * full, dense * full),
        (c**3, dense**3),
        (c.abs().sqrt(), dense.abs().sqrt()),
        (c * in_layout(full, layout), dense * full),
        (-c / 2, -dense / 2),
        (c.sum(1, keepdim=True) if layout not in BLOCKS else c.sum(), dense.sum(1, keepdim=True) if layout not in BLOCKS else dense.sum()),
        (c @ c.t().to_sparse(layout=torch.sparse_csr), dense @ dense.t()) if layout is torch.sparse_csr else (c, dense),
        (full.sparse_mask(c), full * in_layout(dense, layout).to_sparse().to_dense().ne(0)) if layout not in BLOCKS else (c, dense),
    ]  # fmt: skip
    if other not in BLOCKS or not columns % 1:
        pairs.append((c.to_sparse(layout=other, blocksize=(1, 1) if other in BLOCKS else None), dense))
    for number, (got, expected) in enumerate(pairs):
        got = got if got.layout is torch.strided else got.to_dense()
        np.testing.assert_array_equal(got.numpy(), expected.numpy(), str(number))


def test_parts_lie_where_they_are() -> None:
    assert C.crow_indices().tolist() == [0, 2, 2, 4, 5] and C.col_indices().tolist() == [1, 3, 0, 2, 3]
    columns = C.to_sparse_csc()
    assert columns.ccol_indices().tolist() == [0, 1, 2, 3, 5] and columns.row_indices().tolist() == [
        2,
        0,
        2,
        0,
        3,
    ]
    blocks = D.to_sparse_bsr((2, 2))
    assert blocks.values().shape == (4, 2, 2) and blocks.crow_indices().tolist() == [0, 2, 4]
    shared = C.clone()
    shared.t().values()[0] = 9
    assert shared.to_dense()[0, 1] == 9
    narrow = torch.sparse_csr_tensor(
        crow_indices=C.crow_indices().int(),
        col_indices=C.col_indices().int(),
        values=C.values(),
        size=C.shape,
    )
    assert narrow.col_indices().dtype is torch.int32
    np.testing.assert_array_equal((narrow @ D).numpy(), (D @ D).numpy())
    unordered = torch.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 3))
    assert unordered.to_dense().tolist() == [
        [2, 1, 0]
    ] and unordered.to_sparse().coalesce().values().tolist() == [2, 1]
    assert (
        torch.zeros(2, 3, layout=torch.sparse_csr)._nnz() == 0
        and torch.ones_like(C).values().tolist() == [1] * 5
    )


def test_gradients_have_the_layout_and_reach_the_values() -> None:
    values = C.values().clone().requires_grad_()
    weight = torch.arange(8.0, dtype=torch.float64).reshape(4, 2).requires_grad_()
    graph = C.crow_indices(), C.col_indices()
    functions = [
        lambda s, w: s.to_dense() * 2,
        lambda s, w: (s @ w).pow(2),
        lambda s, w: (w.t() @ s).pow(2),
        lambda s, w: (s.t() @ w).pow(2),
        lambda s, w: torch.sparse.mm(s, w),
        lambda s, w: torch.sparse.mm(s, w, "mean"),
        lambda s, w: torch.sparse.mm(s, w, "amax"),
        lambda s, w: torch.sparse.mm(s, w, "amin"),
        lambda s, w: torch.sparse.sampled_addmm(s, w, w.t(), beta=0.5, alpha=2).values(),
        lambda s, w: (s * 3 + s).to_sparse_csc().to_dense(),
        lambda s, w: torch.nn.functional.linear(w.t(), s),
    ]  # fmt: skip
    for number, function in enumerate(functions):
        assert torch.autograd.gradcheck(
            lambda v, w, f=function: f(torch.sparse_csr_tensor(*graph, v, C.shape), w), (values, weight)
        ), number
    turned = values.detach() * (1 + 2j), weight.detach() * (2 - 1j)
    leaves = [t.requires_grad_() for t in turned]
    for mix in (
        torch.sparse.mm,
        lambda s, w: torch.sparse.sampled_addmm(s, w, w.t(), beta=1j, alpha=2 + 1j).values(),
    ):
        assert torch.autograd.gradcheck(
            lambda v, w, f=mix: f(torch.sparse_csr_tensor(*graph, v, C.shape), w), leaves
        )
    leaf = C.clone().requires_grad_()
    (torch.sparse.mm(leaf, weight).sum() + leaf.values().pow(2).sum()).backward()
    assert (
        leaf.grad.layout is torch.sparse_csr and leaf.grad.col_indices().tolist() == C.col_indices().tolist()
    )


def test_large_products_with_a_dense_matrix_and_their_gradients() -> None:
    torch.manual_seed(0)
    dense = torch.randn(300, 200) * (torch.rand(300, 200) < 0.1)
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        x = torch.randn(200, 64, requires_grad=True)
        (sparse @ x).pow(2).sum().backward()
        expected = torch.autograd.grad((dense @ x).pow(2).sum(), x)[0]
        torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-3)


def test_files_and_copies() -> None:
    for layout in LAYOUTS:
        c = in_layout(D, layout)
        file = io.BytesIO()
        torch.save({"c": c, "p": torch.nn.Parameter(c)}, file)
        file.seek(0)
        read = torch.load(file)
        assert isinstance(read["p"], torch.nn.Parameter)
        for again in (*read.values(), pickle.loads(pickle.dumps(c)), copy.deepcopy(c)):
            assert again.layout is layout and repr(again.detach()) == repr(c)


ERRORS: list[tuple[Any, type[Exception], str]] = [
    (lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (2, 3)), RuntimeError, r"crow_indices.shape\[-1\] must be equal to 3"),
    (lambda: torch.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 2.0], (2, 3)), RuntimeError, "0 <= col_indices < ncols"),
    (lambda: torch.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 3)), RuntimeError, "== nnz"),
    (lambda: torch.sparse_csr_tensor([1, 2, 2], [0, 1], [1.0, 2.0], (2, 3)), RuntimeError, "== 0"),
    (lambda: torch.sparse_csr_tensor([0, 3, 2], [0, 1], [1.0, 2.0], (2, 3)), RuntimeError, "0 <= crow_indices"),
    (lambda: torch.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 3), check_invariants=True), RuntimeError, "sorted and distinct"),
    (lambda: torch.sparse_bsr_tensor([[0, 1]], [[0]], torch.ones(1, 1, 2, 2)), NotImplementedError, "of one dimension"),
    (lambda: torch.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]], (2, 1, 1)), RuntimeError, "do not fit size"),
    (lambda: torch.sparse_csr_tensor([[0, 1], [1, 1]], [[0], [0]], [[1.0], [1.0]]), RuntimeError, "0\\] == 0"),
    (lambda: torch.stack([D, D.tril()]).to_sparse_csr(), RuntimeError, "same number of specified elements"),
    (lambda: torch.stack([D, D]).to_sparse_csr() @ D, RuntimeError, "takes another of matrices"),
    (lambda: D @ torch.stack([D, D]).to_sparse_csr(), RuntimeError, "only rows and columns"),
    (lambda: torch.sparse.mm(torch.stack([D, D]).to_sparse_csr(), D, "amax"), RuntimeError, "expects a CSR matrix"),
    (lambda: torch.stack([D, D]).to_sparse_csr().transpose(0, 1), RuntimeError, "only rows and columns"),
    (lambda: torch.sparse_compressed_tensor([0, 1], [0], [1.0]), RuntimeError, "expected sparse compressed"),
    (lambda: D.to_sparse_bsr((3, 1)), RuntimeError, "divisible by given blocksize"),
    (lambda: D.to_sparse(layout=torch.sparse_bsr), RuntimeError, "without blocksize"),
    (lambda: D.to_sparse(layout=torch.sparse_csr, blocksize=(2, 2)), RuntimeError, "blocksize"),
    (lambda: C.ccol_indices(), RuntimeError, "ccol_indices expected sparse column"),
    (lambda: D.crow_indices(), RuntimeError, "crow_indices expected sparse row"),
    (lambda: C.indices(), RuntimeError, "but got SparseCsr"),
    (lambda: C.coalesce(), RuntimeError, "but got SparseCsr"),
    (lambda: C.sum(0), RuntimeError, "keepdim=True"),
    (lambda: C[1:], NotImplementedError, "indexed by numbers"),
    (lambda: C.cos(), NotImplementedError, "cos is not defined"),
    (lambda: C + torch.ones(2, 2, dtype=torch.float64), RuntimeError, "size"),
    (lambda: torch.sparse.mm(C, D, "median"), ValueError, "amax"),
    (lambda: torch.sparse.sampled_addmm(C, D, D[:, :2]), RuntimeError, "shape of input"),
    (lambda: torch.sparse.sampled_addmm(torch.stack([D, D]).to_sparse_csr(), torch.stack([D, D]), D), RuntimeError, "shape of input"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "error", "message"), ERRORS)
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


def test_changed_indices_reach_no_foreign_memory() -> None:
    c = C.clone()
    assert c.to_dense()[0, 1] == 1
    c.col_indices()[0] = 0
    assert c.to_dense()[0].tolist() == [1, 0, 0, 2]
    c.col_indices()[0] = 1 << 40
    for product in (
        lambda: c @ D,
        lambda: c.t() @ D,
        lambda: torch.sparse.mm(c, D, "amax"),
        lambda: c.to_dense(),
    ):
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            product()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [torch.sparse_coo, *LAYOUTS])
def test_on_a_gpu_as_on_the_cpu(layout: torch.layout) -> None:
    torch.manual_seed(0)
    d = torch.randn(6, 5) * (torch.rand(6, 5) < 0.4)
    w = torch.randn(5, 3)

    def results(device: str) -> list[np.ndarray]:
        dense, x = d.to(device), w.to(device).requires_grad_()
        c = in_layout(dense, layout)
        a = c.clone().requires_grad_()
        torch.sparse.mm(a, x).pow(2).sum().backward()
        rows = c.to_sparse_csr() if layout not in BLOCKS else dense.to_sparse_csr()
        made = [
            c @ x, dense.t() @ c, dense + c, dense - c, dense * c, c * dense, c + c, x.grad, a.grad, c.to_sparse_coo()[1],
            rows, rows @ rows.t(), rows.sum(1, keepdim=True), rows.to_sparse_coo()[1:, 2], torch.sparse.mm(rows, x, "mean"),
            torch.sparse.sampled_addmm(rows, x.new_ones(6, 3), x.t()), dense.clone().add_(c),
        ]  # fmt: skip
        assert {t.device.type for t in made} == {device}
        return [t.detach().to_dense().cpu().numpy() for t in made]

    for number, (got, expected) in enumerate(zip(results("cuda"), results("cpu"), strict=True)):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6, err_msg=str(number))


def test_assert_close_compares_the_parts() -> None:
    other = C.clone()
    other.values()[0] = 2
    torch.testing.assert_close(C, C.clone())
    with pytest.raises(AssertionError, match="Sparse CSR values"):
        torch.testing.assert_close(C, other)
    with pytest.raises(AssertionError, match="specified values in sparse CSR"):
        torch.testing.assert_close(C, torch.zeros_like(C))
