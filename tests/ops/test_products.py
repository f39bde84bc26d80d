"""Products: einsum in all its forms, sums of products, and what dtypes and empty dimensions do."""

import numpy as np
import pytest

import ddpgrad as torch


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in shapes]


EQUATIONS = [
    ("ij->ji", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->", (2, 3)), ("...i->...", (2, 3)),
    ("i,i", (3,), (3,)), ("i,j->ji", (2,), (3,)), ("ij,jk", (2, 3), (3, 4)), ("ki,kj->ji", (3, 2), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("...ij,...jk", (2, 1, 3, 4), (5, 4, 2)), ("abcd,cb->da", (2, 3, 4, 5), (4, 3)), ("ij,ij->ij", (2, 3), (2, 3)),
    ("bii,bi->b", (2, 3, 3), (2, 3)), ("iji,jk->k", (3, 2, 3), (2, 4)), ("ij,kl->lijk", (2, 3), (4, 5)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)), ("i,ij,j->", (3,), (3, 4), (4,)), ("zab,zcb,zdc,e->zaed", (2, 3, 4), (2, 5, 4), (2, 2, 5), (3,)),
     ("i...,i...->...", (3, 2, 2), (3, 2, 1)), (" a b , b c ", (2, 3), (3, 2)),
    ("ijk,jl->", (2, 3, 4), (3, 5)), ("Ab,bA->A", (2, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: c[0])
def test_einsum_is_numpys_and_has_a_gradient(case: tuple):
    equation, *shapes = case
    values = arrays(*shapes)
    tensors = tuple(torch.tensor(v).requires_grad_() for v in values)
    out = torch.einsum(equation, *tensors)
    np.testing.assert_allclose(out.numpy(force=True), np.einsum(equation, *values), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *t: torch.einsum(equation, *t), tensors)


def test_einsum_stretches_an_index_of_length_1():
    a, b = (torch.tensor(v) for v in arrays((2, 1), (4, 3, 5)))
    out = torch.einsum("ij,...j->i...", a, b)
    np.testing.assert_allclose(out.numpy(), a.numpy()[:, :, None] * b.numpy().sum(-1), rtol=1e-12)


def test_einsum_does_not_cut_floats_to_whole_numbers():
    whole, floats = torch.tensor([1, 2]), torch.tensor([1.5, 2.0])
    for pair in ((whole, floats), (floats, whole)):
        with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
            torch.einsum("i,i", *pair)
    small = torch.tensor([[100, 100]], dtype=torch.int8)
    assert torch.einsum("ij,k->i", small, small[0]).tolist() == [40000]


def test_einsum_sums_nothing_over_an_index_of_length_1_so_that_dtypes_may_differ():
    left, right = torch.ones(2, 1, dtype=torch.int16), torch.ones(1, 3, dtype=torch.bfloat16)
    assert torch.einsum("ab,bc->ac", left, right).dtype is torch.bfloat16
    assert torch.einsum("ab,bc->ac", left, left.T).dtype is torch.int16
    assert torch.einsum("ab->a", left).dtype is torch.int64


def test_einsum_takes_lists_of_numbers_and_a_list_of_operands():
    a, b = (torch.tensor(v) for v in arrays((2, 3, 4), (4, 3)))
    expected = torch.einsum("aij,jk->aik", a, b)
    assert torch.equal(torch.einsum(a, [..., 7, 2], b, [2, 30], [..., 7, 30]), expected)
    assert torch.equal(torch.einsum("aij,jk->aik", [a, b]), expected)
    assert torch.einsum(b, [0, 1], b, [0, 1]).item() == pytest.approx((b * b).sum().item())


@pytest.mark.parametrize(
    ("equation", "shapes", "text"),
    [
        ("ij,jk", [(2, 3)], "fewer operands were provided"),
        ("ij", [(2, 3), (2, 3)], "more operands were provided"),
        (
            "ijk",
            [(2, 3)],
            r"number of subscripts in the equation \(3\) does not match the number of dimensions \(2\)",
        ),
        ("i?", [(2, 3)], r"invalid subscript given: '\?'"),
        ("ij->ik", [(2, 3)], "output subscript k does not appear"),
        ("ij->ii", [(2, 3)], "output subscript i appears more than once"),
        ("ii", [(2, 3)], "sizes don't match, 3 != 2"),
        ("ij,jk", [(2, 3), (4, 2)], "subscript j has size 3 and size 4"),
    ],
)
def test_einsum_errors(equation: str, shapes: list, text: str):
    with pytest.raises(RuntimeError, match=text):
        torch.einsum(equation, *[torch.ones(s) for s in shapes])


def test_einsum_contracts_three_operands_in_the_cheap_order():
    # Left to right, the intermediate result would have 10^12 elements.
    x = torch.ones(10**6)
    assert torch.einsum("i,j,j->i", x, x, x)[0].item() == pytest.approx(1e6)


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [(((2, 3, 4), (3, 4, 5)), 2), (((2, 3), (4, 5)), 0), (((2, 3, 4), (4, 5, 3)), ([1, 2], [2, 0]))],
)
def test_tensordot_is_numpys(shapes: tuple, dims: object):
    a, b = arrays(*shapes)
    np.testing.assert_allclose(
        torch.tensordot(torch.tensor(a), torch.tensor(b), dims).numpy(), np.tensordot(a, b, dims)
    )


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((2,), (3, 4)), ((2, 3, 2), (2, 2))])
def test_kron_is_numpys(shapes: tuple):
    a, b = arrays(*shapes)
    np.testing.assert_allclose(torch.kron(torch.tensor(a), torch.tensor(b)).numpy(), np.kron(a, b))


def test_beta_zero_ignores_what_the_input_holds():
    nan = torch.full((2, 2), float("nan")).requires_grad_()
    out = torch.addmm(nan, torch.eye(2), torch.eye(2), beta=0, alpha=2)
    out.sum().backward()
    assert out.tolist() == [[2, 0], [0, 2]] and nan.grad.tolist() == [[0, 0], [0, 0]]


def test_addmm_of_integers_cuts_its_factors():
    ones = torch.ones(2, 2, dtype=torch.int64)
    assert torch.addmm(ones, ones, ones, beta=2.7, alpha=1.5).tolist() == [[4, 4], [4, 4]]


@pytest.mark.parametrize(
    "shapes", [((2, 0), (0, 3)), ((2, 3, 0), (0, 2)), ((0, 3), (3, 2)), ((0, 2, 3), (3, 2))]
)
def test_products_over_nothing_are_zero_and_have_gradients(shapes: tuple):
    a, b = (torch.ones(s).requires_grad_() for s in shapes)
    out = a @ b
    out.sum().backward()
    assert not out.any() and a.grad.shape == a.shape and b.grad.shape == b.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_products_of_no_matrices(dtype: torch.dtype):
    assert torch.bmm(torch.ones(0, 5, 10, dtype=dtype), torch.ones(0, 10, 5, dtype=dtype)).shape == (0, 5, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_of_16_bit_numbers_are_rounded_once(dtype: torch.dtype):
    a = torch.full((1, 4096), 1.0, dtype=dtype)
    assert (a @ a.mT).item() == 4096


def test_bools_have_no_matrix_product():
    with pytest.raises(NotImplementedError, match="not implemented for bools"):
        torch.ones(2, 2, dtype=torch.bool) @ torch.ones(2, 2, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.mm(torch.ones(2), torch.ones(2, 2)), "self must be a matrix"),
        (lambda: torch.bmm(torch.ones(1, 2, 3), torch.ones(1, 2, 3)), r"to be: \[1, 3\] but got: \[1, 2\]"),
        (lambda: torch.dot(torch.ones(2), torch.ones(3)), "inconsistent tensor size"),
        (lambda: torch.outer(torch.ones(2, 2), torch.ones(2)), "Expected 1-D argument self, but got 2-D"),
        (
            lambda: torch.addmm(torch.ones(5, 5), torch.ones(2, 3), torch.ones(3, 2)),
            "must match the existing size",
        ),
        (lambda: torch.inner(torch.ones(2, 3), torch.ones(2, 4)), r"got shapes \[2, 3\] and \[2, 4\]"),
        (lambda: torch.linalg.cross(torch.ones(2), torch.ones(2)), "must have length 3. Got 2 and 2"),
    ],
)
def test_wrong_shapes(call, text: str):
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", [119, 121, 1])
def test_large_products_refuse_lengths_that_differ(dtype: torch.dtype, length: int):
    left, right = torch.ones(4, 300, 120).to(dtype), torch.ones(4, length, 300).to(dtype)
    for call in (
        lambda: left[0] @ right[0],
        lambda: left @ right,
        lambda: left @ right[0],
        lambda: torch.bmm(left, right),
    ):
        with pytest.raises(RuntimeError, match=r"size|shape|mismatch"):
            call()


def test_factors_may_come_before_the_operands_as_they_once_did():
    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 2)
    distances = y.clone()
    with pytest.warns(UserWarning, match="beta=1, alpha=-2"):
        distances.addmm_(1, -2, x, x.t())
    assert torch.equal(distances, y - 2 * (x @ x.t()))
    with pytest.warns(UserWarning, match="deprecated"):
        assert torch.equal(torch.addmv(2, y[0], y, y[0]), 2 * y[0] + y @ y[0])
    with pytest.raises(TypeError, match="expected three tensors"):
        torch.addmm(1, x, x, x, beta=2)
    assert torch.equal(torch.addmm(y, y, y, beta=torch.tensor(3)), 3 * y + y @ y)
    with pytest.raises(TypeError, match="must be Numbers, not str"):
        torch.addmm(y, y, y, alpha="2")


def test_groups_of_rows_have_matrices_of_their_own():
    rows = torch.tensor(arrays((6, 4))[0], requires_grad=True)
    first, last = (torch.tensor(a, requires_grad=True) for a in arrays((4, 3), (4, 3)))
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    a, b = rows.float(), torch.stack([first, torch.zeros_like(first), last]).float()
    made = torch.nn.functional.grouped_mm(a, b, offs=ends)
    expected = torch.cat([rows[:2] @ first, rows[2:5] @ last, torch.zeros(1, 3)])
    torch.testing.assert_close(made, expected.float())
    weights = torch.arange(18.0).reshape(6, 3)
    grads = torch.autograd.grad((made * weights).sum(), (rows, first, last))
    others = torch.autograd.grad((expected * weights).sum(), (rows, first, last))
    torch.testing.assert_close(grads, others, rtol=1e-5, atol=1e-5)

    columns = torch.nn.functional.grouped_mm(b[:, :, :2], a.detach()[:2], offs=ends[:1].repeat(3))
    torch.testing.assert_close(columns[:, :2], b[0, :, :2] @ a.detach()[:2, :2])
    sums = torch._grouped_mm(a.t(), a.detach(), offs=ends)
    torch.testing.assert_close(sums, torch.stack([a[s:e].t() @ a[s:e] for s, e in ((0, 2), (2, 2), (2, 5))]))
    torch.testing.assert_close(torch.nn.functional.grouped_mm(b, b.mT), b @ b.mT)
    for wrong, match in (
        (lambda: torch._grouped_mm(a, b), "offsets"),
        (lambda: torch._grouped_mm(a, b, offs=ends.long()), "int32"),
        (lambda: torch._grouped_mm(a, b, offs=ends[:2]), "batch sizes"),
        (lambda: torch._grouped_mm(rows, b, offs=ends), "float64"),
        (lambda: torch._grouped_mm(a[:, :3], b, offs=ends), "contraction"),
    ):
        with pytest.raises(RuntimeError, match=match):
            wrong()
    for places in ([2, 1, 5], [2, 3, 7]):
        with pytest.raises(ValueError, match="must not decrease, from 0 to at most 6"):
            torch._grouped_mm(a, b, offs=torch.tensor(places, dtype=torch.int32))
