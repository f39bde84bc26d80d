"""Calls that programs of PyTorch's early years make: the same results, with a warning that says what to write."""

import pytest
from both import LIBRARIES, agree

import ddpgrad

X, Y, Z = ([0.0, 1.0, 2.0], [2.0, 3.0, 4.0], [1.0, 2.0, 5.0])


@pytest.mark.filterwarnings("ignore:This overload of")
@pytest.mark.parametrize("name", ["add", "sub", "addcmul", "addcdiv"])
@pytest.mark.parametrize("form", ["function", "method", "in place"])
def test_the_factor_may_come_before_the_operands(name, form):
    def call(lib):
        x, *operands = (lib.tensor(values) for values in ((X, Y) if name in ("add", "sub") else (X, Y, Z)))
        if form == "function":
            return getattr(lib, name)(x, 0.5, *operands)
        return getattr(x, f"{name}_" if form == "in place" else name)(0.5, *operands)

    with pytest.warns(UserWarning, match="overload of .* is deprecated"):
        agree(call)


def test_volatile_warns_and_has_no_effect():
    for lib in LIBRARIES:
        with pytest.warns(UserWarning, match="volatile was removed"):
            x = lib.autograd.Variable(lib.ones(2), volatile=True)
        assert not x.requires_grad
        with pytest.warns(UserWarning, match="volatile was removed"):
            assert x.volatile is False


@pytest.mark.filterwarnings("ignore:.*[sS]parse")
def test_sparse_matrices_give_the_same_values_and_gradients():
    def run(lib):
        values = lib.tensor([3.0, 4.0, 5.0], requires_grad=True)
        places = lib.tensor([[0, 1, 1], [2, 0, 0]])
        weight = lib.arange(6.0).reshape(3, 2).requires_grad_()
        matrix = lib.sparse_coo_tensor(places, values, (2, 3))
        product = lib.spmm(matrix, weight)
        (product * product).sum().backward()
        more = (
            lib.sparse.mm(matrix.detach(), weight.detach()),
            lib.eye(2).to_sparse() @ lib.ones(2, 2),
            lib.sparse.FloatTensor(places, lib.ones(3), lib.Size([2, 3])).coalesce().to_dense(),
            lib.sparse_coo_tensor([[0, 1]], lib.ones(2, 3), dtype=lib.int64).to_dense(),
        )
        return product, values.grad, weight.grad, *more

    agree(run, 0.0)


def test_data_parallel_as_a_function_calls_the_module():
    layer = ddpgrad.nn.Bilinear(2, 3, 1)
    x, y = ddpgrad.ones(4, 2), ddpgrad.ones(4, 3)
    assert ddpgrad.equal(ddpgrad.nn.parallel.data_parallel(layer, (x, y)), layer(x, y))
    with pytest.raises(NotImplementedError, match="2 devices"):
        ddpgrad.nn.parallel.data_parallel(layer, (x, y), [0, 1])
