"""Sparse tensors and gradients against PyTorch: elements, text, errors, files."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ddpgrad

pytestmark = pytest.mark.filterwarnings("ignore:.*[sS]parse")
LIBRARIES = (ddpgrad, torch)


def operands(lib: Any) -> tuple[Any, Any, Any]:
    """A sparse matrix with a place that occurs twice, one with a dense dimension, and a dense matrix."""
    places = lib.tensor([[1, 0, 1, 1], [0, 2, 2, 2]])
    s = lib.sparse_coo_tensor(places, lib.tensor([4.0, 3.0, 5.0, -1.0]), (2, 3))
    h = lib.sparse_coo_tensor(places[:1], lib.arange(12.0).reshape(4, 3), (2, 3))
    return s, h, lib.arange(6.0).reshape(2, 3) - 2


CALLS: dict[str, Any] = {
    "coalesce": lambda lib, s, h, d: s.coalesce(),
    "hybrid": lambda lib, s, h, d: h.coalesce(),
    "add": lambda lib, s, h, d: s + s.coalesce() * 2,
    "add-dense": lambda lib, s, h, d: d + s,
    "sub-dense": lambda lib, s, h, d: d.sub(h, alpha=3),
    "add_": lambda lib, s, h, d: d.clone().add_(s, alpha=2),
    "sparse-add_": lambda lib, s, h, d: s.clone().add_(s, alpha=2).mul_(3).div_(2),
    "mul-dense": lambda lib, s, h, d: (s * d, d * h, s * s.coalesce()),
    "numbers": lambda lib, s, h, d: (2 * s, s / 2, -h),
    "values": lambda lib, s, h, d: (s.sqrt().abs(), s.relu(), s.sin(), s.pow(2), s.isnan(), s.sign()),
    "casts": lambda lib, s, h, d: (s.double(), s.to(lib.int64), h.half()),
    "layout": lambda lib, s, h, d: (s.t(), s.transpose(0, 1), s.permute(1, 0), s.unsqueeze(1), h.unsqueeze(2)),
    "reads": lambda lib, s, h, d: (s[0], s[1, 2], s[:, 2], h[1], s.index_select(1, lib.tensor([2, 0, 2]))),
    "joined": lambda lib, s, h, d: (lib.cat([s, s], 1), lib.stack([s, s])),
    "sums": lambda lib, s, h, d: (s.sum(), s.sum(0), h.sum(1), lib.sparse.sum(s, (0, 1)), lib.sparse.sum(h, 0)),
    "products": lambda lib, s, h, d: (s @ d.t(), s.mv(lib.ones(3)), lib.mm(s, d.t()), s @ s.t(), d.t() @ s, lib.mm(d.t(), s)),
    "addmm": lambda lib, s, h, d: lib.sparse.addmm(lib.ones(2, 2), s, d.t(), beta=2, alpha=3),
    "softmax": lambda lib, s, h, d: (lib.sparse.softmax(s, 0), lib.sparse.log_softmax(s, 1), lib.sparse.softmax(h, 1)),
    "mask": lambda lib, s, h, d: (d.sparse_mask(s.coalesce()), d.sparse_mask(h.coalesce())),
    "to_sparse": lambda lib, s, h, d: (d.to_sparse(), d.to_sparse(1), lib.zeros(2, 2).to_sparse()),
    "norm": lambda lib, s, h, d: s.norm(),
    "zeros": lambda lib, s, h, d: (lib.zeros_like(s), lib.zeros(2, 3, layout=lib.sparse_coo), s.clone().zero_()),
    "kinds": lambda lib, s, h, d: [s.is_sparse, h.sparse_dim(), h.dense_dim(), h._nnz(), s.type(), s.numel(), d.dense_dim()],
}  # fmt: skip


def elements(value: Any) -> Any:
    """A result as plain data: (layout, shape, dtype, elements) for tensors."""
    if isinstance(value, (tuple, list)):
        return [elements(part) for part in value]
    if not hasattr(value, "layout"):
        return value
    return [str(value.layout), list(value.shape), str(value.dtype), value.to_dense().tolist()]


def rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", CALLS)
def test_the_same_elements(name: str) -> None:
    ours, theirs = (rounded(elements(CALLS[name](lib, *operands(lib)))) for lib in LIBRARIES)
    assert ours == theirs


# Parts and results of matrices that are stored by rows, by columns and in blocks: c, csc, bsr; d dense; w (3, 2).
COMPRESSED: dict[str, Callable[..., Any]] = {
    "texts": lambda lib, c, csc, bsr, d, w: [repr(t) for t in (
        c, csc, bsr, c.to(lib.int64), c * 2, c.detach().requires_grad_() * 2, lib.nn.Parameter(c), bsr.t(),
        lib.zeros(2, 3, layout=lib.sparse_csr), lib.zeros(2, 3, layout=lib.sparse_csc, dtype=lib.float64))],
    "conversions": lambda lib, c, csc, bsr, d, w: [repr(t) for t in (
        c.to_sparse(), c.to_sparse_csc(), c.to_sparse_bsr((1, 3)), csc.to_sparse_csr(), csc.t(), c.t().to_sparse_csr(),
        d.to_sparse_bsc((2, 1)), d.to_sparse(layout=lib.sparse_csc), d.to_sparse().to_sparse_csr(), bsr.to_sparse().coalesce())],
    "arithmetic": lambda lib, c, csc, bsr, d, w: [repr(t) for t in (
        c + c, c * 3, c * d, d * c, d + c, -c, c.abs(), c.sin(), c.sum(), c.sum(0, keepdim=True), c.sum(1, keepdim=True),
        c.clone().mul_(2), c[0], c[1, 2], c.half(), c.sparse_mask(c), d.sparse_mask(csc), lib.ones_like(c))],
    "products": lambda lib, c, csc, bsr, d, w: [
        c @ w, csc @ w, c @ w[:, 0], w.t() @ c.t(), lib.addmm(lib.ones(2, 2), c, w, beta=2, alpha=0.5),
        (c @ c.t()).to_dense(), lib.sparse.mm(c, w, "mean"), lib.sparse.mm(c, w, "amax"), lib.sparse.mm(c, w, "amin"),
        lib.sparse.sampled_addmm(c, lib.ones(2, 2), w.t(), beta=0.5).values(), lib.nn.functional.linear(w.t(), c)],
    "gradients": lambda lib, c, csc, bsr, d, w: [
        (repr(a.grad), x.grad.tolist()) for a, x in (after(lib, c, w, f) for f in (
            lambda a, x: a @ x, lambda a, x: lib.sparse.mm(a, x), lambda a, x: lib.sparse.mm(a, x, "mean"),
            lambda a, x: lib.sparse.mm(a, x, "amax"), lambda a, x: a.to_dense() * x.t(), lambda a, x: a.values() * x.sum(),
            lambda a, x: lib.sparse.sampled_addmm(a, lib.ones(2, 2), x.t()).values()))],
}  # fmt: skip


def after(lib: Any, c: Any, w: Any, function: Callable[..., Any]) -> tuple[Any, Any]:
    """Leaves like `c` and `w`, with the gradients of a function of them."""
    a, x = c.clone().requires_grad_(), w.clone().requires_grad_()
    function(a, x).sum().backward()
    return a, x


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_same_of_matrices_stored_by_lines(name: str) -> None:
    def made(lib: Any) -> Any:
        d = lib.tensor([[0.0, 1.5, 2], [3, 0, 0]])
        w = lib.arange(6.0).reshape(3, 2) - 2
        return elements(
            COMPRESSED[name](lib, d.to_sparse_csr(), d.to_sparse_csc(), d.to_sparse_bsr((2, 1)), d, w)
        )

    assert made(ddpgrad) == made(torch)


def test_the_same_text() -> None:
    def texts(lib: Any) -> list[str]:
        s, h, _ = operands(lib)
        leaf = s.detach().requires_grad_()
        made = [
            s,
            h.coalesce(),
            s.double(),
            leaf,
            leaf * 2,
            lib.zeros_like(h),
            lib.nn.Parameter(s),
            s.to(lib.int64),
        ]
        return [repr(t) for t in made]

    assert texts(ddpgrad) == texts(torch)


GRADIENTS: list[Any] = [
    lambda lib, s, w: lib.sparse.mm(s, w),
    lambda lib, s, w: lib.mm(s, w),
    lambda lib, s, w: (w @ s).pow(2),
    lambda lib, s, w: lib.sparse.addmm(w[:2], s, w, beta=2, alpha=3),
    lambda lib, s, w: s.to_dense() * 2,
    lambda lib, s, w: s.coalesce().values() * 3,
    lambda lib, s, w: (s + s * 2).to_dense().pow(2),
    lambda lib, s, w: lib.sparse.sum(s, 0).to_dense() * lib.arange(3.0),
    lambda lib, s, w: lib.sparse.softmax(s, 1).to_dense() * lib.arange(3.0),
    lambda lib, s, w: (w.t() + s).pow(2),
]


@pytest.mark.parametrize("number", range(len(GRADIENTS)))
def test_the_same_gradients(number: int) -> None:
    def run(lib: Any) -> list[Any]:
        s = operands(lib)[0].coalesce().detach().requires_grad_()
        w = lib.arange(6.0).reshape(3, 2).requires_grad_()
        values = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        GRADIENTS[number](lib, s, w).sum().backward()
        GRADIENTS[number](
            lib, lib.sparse_coo_tensor(s.detach().indices(), values, (2, 3)), w
        ).sum().backward()
        return [elements(t.grad) for t in (s, w, values) if t.grad is not None]

    assert rounded(run(ddpgrad)) == rounded(run(torch))


ERRORS: list[Any] = [
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([[0, 2]]), lib.ones(2), (2,), check_invariants=True),
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([[-1, 0]]), lib.ones(2)),
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([[0, 1]]), lib.ones(3), (2,)),
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([[0, 1]]), lib.ones(2, 3), (2,)),
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([[0, 1]]), lib.ones(2, 3), (2, 4)),
    lambda lib, s, d: lib.sparse_coo_tensor(lib.tensor([0, 1]), lib.ones(2), (2, 3)),
    lambda lib, s, d: s.values(),
    lambda lib, s, d: s.indices(),
    lambda lib, s, d: d.values(),
    lambda lib, s, d: d.coalesce(),
    lambda lib, s, d: d.is_coalesced(),
    lambda lib, s, d: d.copy_(s),
    lambda lib, s, d: s.numpy(),
    lambda lib, s, d: lib.nn.EmbeddingBag(2, 2, mode="max", sparse=True)(lib.tensor([[0]])),
    lambda lib, s, d: lib.optim.SparseAdam([s.clone().requires_grad_()]),
    lambda lib, s, d: lib.optim.SparseAdam([d], lr=0),
    lambda lib, s, d: lib.optim.SparseAdam([d], betas=(1.0, 0.5)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_the_same_errors(number: int) -> None:
    found = []
    for lib in LIBRARIES:
        s, _, d = operands(lib)
        with pytest.raises((RuntimeError, TypeError, ValueError)) as caught:
            ERRORS[number](lib, s, d)
        found.append(caught)
    ours, theirs = found
    assert ours.type is theirs.type and str(theirs.value) in str(ours.value)


@pytest.mark.parametrize("name", ["exp", "eq", "clamp", "mean", "view"])
def test_ops_that_neither_has_are_the_same_error(name: str) -> None:
    for lib in LIBRARIES:
        s, _, _ = operands(lib)
        with pytest.raises(NotImplementedError):
            getattr(s, name)(*{"eq": (s,), "clamp": (0,), "view": (6,)}.get(name, ()))


def test_files_are_exchanged() -> None:
    for writer, reader in ((ddpgrad, torch), (torch, ddpgrad)):
        s, h, _ = operands(writer)
        buffer = io.BytesIO()
        writer.save({"s": s, "h": h.coalesce(), "p": writer.nn.Parameter(s), "i": s._indices()}, buffer)
        buffer.seek(0)
        loaded = reader.load(buffer)
        assert loaded["h"].is_coalesced() and not loaded["s"].is_coalesced() and loaded["p"].requires_grad
        assert isinstance(loaded["p"], reader.nn.Parameter)
        for name, tensor in (("s", s), ("h", h), ("p", s), ("i", s._indices())):
            assert elements(loaded[name]) == elements(tensor)


@pytest.mark.parametrize(
    "options", [{"lr": 0.05}, {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "maximize": True}]
)
def test_sparse_adam_takes_the_same_steps(options: dict[str, Any]) -> None:
    def run(lib: Any) -> list[Any]:
        weight = lib.linspace(-2, 2, 21, dtype=lib.float64).reshape(7, 3)
        layer = lib.nn.Embedding.from_pretrained(weight, freeze=False, sparse=True)
        optimizer = lib.optim.SparseAdam(layer.parameters(), **options)
        for step in range(20):
            optimizer.zero_grad()
            layer(lib.tensor([[step % 7, 1, 3], [1, 6 - step % 3, 1]])).pow(2).tanh().sum().backward()
            optimizer.step()
        state = optimizer.state_dict()["state"][0]
        moments = [lib.as_tensor(state[key]).to_dense().tolist() for key in sorted(state)]
        return [layer.weight.tolist(), moments]

    assert rounded(run(ddpgrad)) == rounded(run(torch))
