"""autocast: where it holds, what it casts, and what stays as it is; numbers are in tests/parity."""

import threading
import warnings
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.ops.dispatch.autocast import casting, state

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def product() -> Any:
    """The type that a matrix product of float32 has here."""
    a = torch.ones(2, 2)
    return (a @ a).dtype


def test_contexts_nest_and_end() -> None:
    assert not torch.is_autocast_enabled("cpu") and product() is F32
    with torch.autocast("cpu"):
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled()
        assert product() is BF16
        with torch.autocast("cpu", enabled=False):
            assert product() is F32
            with torch.amp.autocast(device_type="cpu", dtype=F16):
                assert product() is F16 and torch.get_autocast_dtype("cpu") is F16
            assert product() is F32
        assert product() is BF16
    assert product() is F32 and not casting and torch.get_autocast_dtype("cpu") is BF16
    with pytest.raises(ZeroDivisionError), torch.autocast("cpu"):
        raise ZeroDivisionError
    assert not casting


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_transforms_and_systems_of_16_bit_floats_are_computed_in_float32(dtype: torch.dtype) -> None:
    x = torch.eye(4, dtype=dtype)
    with pytest.raises(RuntimeError, match="dtype"):
        torch.fft.rfft(x)
    with torch.autocast("cpu"):
        assert torch.fft.rfft(x).dtype is torch.fft.fft2(x).dtype is torch.complex64
        for solved in (torch.linalg.solve(x, torch.ones(4, 1)), torch.linalg.lstsq(torch.eye(4), x).solution):
            assert solved.dtype is F32


def test_one_context_can_be_entered_again_and_decorate() -> None:
    context = torch.autocast("cpu")

    @context
    def decorated(depth: int) -> Any:
        return product() if depth == 0 else decorated(depth - 1)

    assert decorated(2) is BF16 and product() is F32
    with context, context:
        assert product() is BF16
    assert product() is F32


def test_it_belongs_to_a_thread() -> None:
    found: list[Any] = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append(product()))
        thread.start()
        thread.join()
    assert found == [F32]


def test_parameters_are_cast_once_and_gradients_come_back_in_float32() -> None:
    layer = nn.Linear(3, 3)
    x = torch.ones(2, 3)
    with torch.autocast("cpu"):
        with torch.no_grad():
            layer(x)  # a cast that is not recorded must not serve the next call
        first = layer(x)
        casts = len(state.cache)
        out = layer(first)
        assert len(state.cache) == casts
        loss = nn.functional.mse_loss(out, x)
    assert not state.cache
    assert (out.dtype, loss.dtype) == (BF16, F32)
    loss.backward()
    assert layer.weight.grad.dtype is F32 and float(layer.weight.grad.abs().sum()) > 0


def test_a_parameter_that_changes_is_cast_again() -> None:
    w = nn.Parameter(torch.eye(2))
    with torch.autocast("cpu"):
        a = torch.ones(1, 2) @ w
        with torch.no_grad():
            w.mul_(2)
        assert (torch.ones(1, 2) @ w).tolist() == [[2.0, 2.0]] and a.tolist() == [[1.0, 1.0]]


def test_a_listed_function_computes_in_its_type_throughout() -> None:
    """cdist is made of matrix products, which must not be cast down within it."""
    x = torch.full((2, 2), 1 + 2**-10)
    with torch.autocast("cpu"):
        assert float(torch.cdist(x, x * 2)[0, 0]) == pytest.approx(2**0.5 * (1 + 2**-10), rel=1e-6)


def test_what_it_does_not_take() -> None:
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'tpu'"):
        torch.autocast("tpu")
    with pytest.warns(UserWarning, match=r"CPU autocast.*torch\.float64 is not supported"):
        context = torch.autocast("cpu", dtype=torch.float64)
    with context:
        assert product() is F32
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
            assert product() is F32


def test_former_names() -> None:
    with pytest.warns(FutureWarning, match=r"torch.cpu.amp.autocast\(args...\)` is deprecated"):
        context = torch.cpu.amp.autocast()
    with context:
        assert product() is BF16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.cuda.amp.GradScaler(enabled=False).is_enabled()
        with torch.cuda.amp.autocast(enabled=False):
            assert product() is F32


@pytest.mark.parametrize("cast_inputs", [None, F32])
def test_custom_functions(cast_inputs: Any) -> None:
    types: list[Any] = []

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            types.extend([x.dtype, product()])
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            types.append(product())
            return (g @ x.T + x.T @ g).to(x.dtype)

    x = torch.eye(2, dtype=BF16, requires_grad=True)
    with torch.autocast("cpu"):
        out = Square.apply(x)
    out.sum().backward()
    expected = [BF16, BF16, BF16] if cast_inputs is None else [F32, F32, F32]
    assert types == expected and x.grad.dtype is BF16


def test_decompositions_of_16_bits_compute_in_float32_and_out_is_left_alone() -> None:
    a = torch.eye(2, dtype=BF16)
    linalg = torch.linalg
    with torch.autocast("cpu"):
        for function in (linalg.inv, linalg.cholesky, linalg.svdvals, linalg.eigvalsh, linalg.det):
            assert function(a).dtype is F32
        assert linalg.qr(a)[0].dtype is F32 and linalg.solve(a, a).dtype is F32
        out = torch.empty(2, 2)
        assert torch.mm(a.float(), a.float(), out=out) is out  # computed in float32
        assert torch.matmul(a.float(), a.float() + 1e-3, out=out)[0, 1].item() == pytest.approx(1e-3)
        assert product() is BF16
    with pytest.raises(RuntimeError, match="Low precision"):
        linalg.inv(a)


def test_an_lstm_cell_keeps_its_cell_in_float32() -> None:
    step, x = nn.LSTMCell(2, 2), torch.ones(1, 2)
    with torch.autocast("cpu"):
        hidden, cell = step(x)
        hidden, cell = step(x, (hidden, cell))
    assert (hidden.dtype, cell.dtype) == (F32, F32)
    assert torch.allclose(cell, step(x, step(x))[1], atol=1e-2)
    cell.sum().backward()
    assert step.weight_hh.grad.dtype is F32


def test_the_gpu_lists_are_known() -> None:
    """Every listed name is an op or a function: a name that changes must change in the list too."""
    from ddpgrad.ops import load_all
    from ddpgrad.ops.dispatch.autocast_lists import LISTED
    from ddpgrad.ops.dispatch.declare import OPS
    from ddpgrad.ops.dispatch.tensor_function import FUNCTIONS

    # `functional.pad` asks under a name of the mode and the number of dimensions.
    load_all()
    pads = {f"{mode}_pad{dims}d" for mode in ("reflect", "replicate") for dims in (1, 2, 3)}
    known = {*OPS, *FUNCTIONS, *nn.functional.__all__, *pads}
    assert sorted(LISTED - known) == []


@pytest.mark.gpu
def test_autocast_on_a_gpu(device: str) -> None:
    if device == "cpu":
        pytest.skip("tests/parity compares the CPU with PyTorch")
    a = torch.ones(4, 4, device=device)
    with torch.autocast("cuda"):
        assert (a @ a).dtype is F16 and (a.half() * 2).exp().dtype is F32
        assert torch.cat([a, a.half()]).dtype is F32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.functional.binary_cross_entropy(a / 2, a)


@pytest.mark.gpu
def test_a_gpu_casts_what_a_region_needs_at_once_and_rounds_no_gradient_of_a_parameter(device: str) -> None:
    if device == "cpu":
        pytest.skip("a CPU casts one parameter after the other, as PyTorch does")
    # That a program has a class which is told of ops makes no difference to other tensors.
    type(
        "Told",
        (torch.Tensor,),
        {"__torch_dispatch__": classmethod(lambda cls, f, types, args, kwargs: f(*args))},
    )
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(device)
    x = torch.tensor([[1.0, 0.0], [2.0**-10, 0.0]], device=device)

    def run(layers: Any) -> Any:
        layers.zero_grad()
        with torch.autocast("cuda", BF16):
            out = layers[0](x)
            layers[1](x).sum().backward()
        out.sum().backward()
        return out

    first = run(layers)
    for layer in layers:  # 1 + 2**-10 is none of bfloat16
        assert (
            layer.weight.grad.tolist() == [[1 + 2.0**-10, 0.0]] * 2 and layer.bias.grad.tolist() == [2.0] * 2
        )
    assert torch.equal(run(layers), first)
    with torch.no_grad():
        layers[0].weight += 1
    assert not torch.equal(run(layers), first)
    with torch.autocast("cuda", BF16):
        layers[0](x)  # this casts the second layer's, too
        with torch.no_grad():
            layers[1].bias.fill_(3)
            layers[0].bias.zero_()
        assert layers[1](0 * x).tolist() == [[3.0] * 2] * 2 and layers[0](0 * x).tolist() == [[0.0] * 2] * 2
        (slope,) = torch.autograd.grad(layers[0](x).square().sum(), layers[0].weight, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), layers[0].weight)
    assert slope.dtype is second.dtype is F32 and second[0, 0].item() == pytest.approx(2.0, abs=0.01)
    del layers, layer, first, slope, second
    assert all(weak() is None for group in state.together.values() for weak in group)
