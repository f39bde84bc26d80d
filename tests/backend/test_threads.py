"""Large kernels with one thread and with several: the same bits."""

import _thread
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn as nn
import ddpgrad.nn.functional as F
from ddpgrad.backend.cpu import threads
from ddpgrad.backend.cpu.threads import in_parts
from ddpgrad.distributed.ranks import host


@pytest.fixture(autouse=True)
def one_thread_at_the_end() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def attention(x: Any, causal: bool = False) -> Any:
    return F.scaled_dot_product_attention(x, x * 2, x.cos(), is_causal=causal)


def sequence(layer: Any, lengths: list[int]) -> Callable[[Any], Any]:
    return lambda x: layer(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data


CASES: dict[str, tuple[tuple[int, ...], Callable[[], Callable[[Any], Any]]]] = {
    "relu": ((513, 700), lambda: F.relu),
    "gelu": ((513, 700), lambda: F.gelu),
    "silu of a mean": ((513, 700), lambda: lambda x: F.silu(x).mean()),
    "softmax": ((513, 700), lambda: lambda x: x.softmax(-1)),
    "log_softmax": ((513, 700), lambda: lambda x: x.log_softmax(-1)),
    "glu": ((513, 700), lambda: F.glu),
    "where": ((513, 700), lambda: lambda x: torch.where(x > 0, x, 3.0) + torch.where(x > 0.5, x, x * 2)),
    "dropout": ((513, 700), lambda: lambda x: (torch.manual_seed(0), F.dropout(x, 0.3))[1]),
    "sums": ((513, 700), lambda: lambda x: x.sum(0) + x.sum(1)[:1] + x.sum()),
    "arithmetic of numpy": (
        (513, 700),
        lambda: (
            lambda x: (
                (x.exp() * 2 + x.double() / 3 - (x > 0.5) * x.sin().tanh()).clamp(-2, 2).float().half().sqrt()
            )
        ),
    ),
    "transposed": ((513, 700), lambda: lambda x: (x.t() + x.t().abs()).floor() - 0.3 * x.bfloat16().t()),
    "running sums and orders": (
        (513, 700),
        lambda: (
            lambda x: (
                x.cumsum(1) + x.cumprod(0) + x.sort(1)[0] + x.topk(5)[0].sum() + x.amax(1, True) + x.erf()
            )
        ),
    ),
    "layer_norm": ((513, 700), lambda: nn.LayerNorm(700)),
    "rms_norm": ((513, 700), lambda: nn.RMSNorm(700)),
    "group_norm": ((8, 12, 50, 70), lambda: nn.GroupNorm(3, 12)),
    "batch_norm": ((8, 12, 50, 70), lambda: nn.BatchNorm2d(12)),
    "batch_norm, evaluated": ((8, 12, 50, 70), lambda: nn.BatchNorm2d(12).eval()),
    "max_pool": ((8, 12, 50, 70), lambda: nn.MaxPool2d(2)),
    "max_pool, overlapping": ((8, 12, 50, 70), lambda: nn.MaxPool2d(3, 2, 1)),
    "winograd": ((8, 32, 50, 33), lambda: nn.Conv2d(32, 40, 3, padding=1)),
    "linear of few columns": ((9000, 64), lambda: nn.Linear(64, 40)),
    "products of stacks": ((43, 60, 64), lambda: lambda x: x @ x.mT),
    "product of doubles": ((300, 407), lambda: lambda x: (x.double() @ x.double().T).float()),
    "convolution": ((8, 3, 50, 70), lambda: nn.Conv2d(3, 24, 5, stride=2)),
    "cross_entropy": (
        (513, 700),
        lambda: lambda x: F.cross_entropy(x, torch.arange(513) % 7, ignore_index=3, label_smoothing=0.1),
    ),
    "cross_entropy of images": (
        (4, 9, 90, 70),
        lambda: lambda x: F.cross_entropy(x, torch.arange(25200).view(4, 90, 70) % 9),
    ),
    "embedding": ((5000, 64), lambda: lambda x: F.embedding(torch.arange(9000) * 7 % 5000, x)),
    "attention": ((3, 5, 200, 64), lambda: attention),
    "attention, causal": ((3, 5, 200, 64), lambda: lambda x: attention(x, True)),
    "lstm": ((30, 43, 64), lambda: nn.LSTM(64, 64)),
    "gru, both ways": ((30, 43, 64), lambda: nn.GRU(64, 64, bidirectional=True)),
    "rnn of uneven sequences": (
        (30, 43, 64),
        lambda: sequence(nn.RNN(64, 96), sorted((1 + 5 * i % 30 for i in range(43)), reverse=True)),
    ),
}


def results(case: str, count: int) -> list[bytes]:
    torch.set_num_threads(count)
    torch.manual_seed(3)
    shape, make = CASES[case]
    function = make()
    x = torch.randn(shape, requires_grad=True)
    out = function(x)
    out = out[0] if isinstance(out, tuple) else out
    (out * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum().backward()
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    return [t.numpy().tobytes() for t in (out.detach(), x.grad, *[p.grad for p in parameters])]


@pytest.mark.parametrize("case", CASES)
def test_results_do_not_depend_on_the_number_of_threads(case: str):
    alone = results(case, 1)
    assert results(case, 2) == alone
    assert results(case, 3) == alone


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5), (5, 2)),
        ((3, 5), (4, 5, 2)),
        ((4, 3, 5), (5, 2)),
        ((4, 1, 3, 5), (6, 5, 2)),
        ((6, 3, 5), (4, 6, 5, 2)),
        ((300, 70), (3, 70, 90)),
        ((3, 300, 70), (70, 90)),
        ((3, 300, 70), (3, 70, 90)),
        ((3, 1, 300, 70), (2, 70, 90)),
        ((1, 300, 70), (3, 70, 90)),
        ((10, 3000), (3000, 400)),
        ((1, 3000), (3000, 400)),
        ((3000, 400), (400, 1)),
        ((3000, 400), (400,)),
        ((400,), (2, 400, 300)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_all_shapes_are_numpys(left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype):
    torch.set_num_threads(3)
    a, b = torch.randn(left, dtype=dtype), torch.randn(right, dtype=dtype)
    expected = np.matmul(a.double().numpy(), b.double().numpy())
    np.testing.assert_allclose((a @ b).numpy(), expected, rtol=1e-4, atol=1e-3)


def test_loops_of_numpy_that_feed_themselves_or_find_infinities_are_shared_as_one_thread_does_them():
    torch.set_num_threads(3)
    torch.relu(torch.ones(1 << 20))
    x = np.ones(1 << 20)
    assert x.cumsum()[-1] == np.add.reduce(x) == 1 << 20
    x += x
    np.add(x[:-1], x[1:], out=x[1:])
    assert x[-1] == 4 and x.max() == 4
    x[-1] = 0
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        1 / x  # found by a helper
    zeros = np.zeros(1 << 20, np.int64)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        zeros // zeros


def test_a_loop_that_keeps_the_gil_may_follow_a_part_of_pythons():
    program = """
import ddpgrad as torch
from ddpgrad.backend.cpu import threads, watching
import numpy as np

torch.set_num_threads(3)
torch.relu(torch.ones(1 << 20))
watching.STATE[watching.LEAST] = 0  # of so few elements NumPy keeps the GIL
x = np.ones(400)
for _ in range(300):
    threads.in_parts(lambda first, end: None, 3)
    x += 1
assert (x == 301).all()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


def test_any_thread_of_a_program_computes_the_same_bits():
    x = torch.randn(700, 700).double()
    torch.set_num_threads(2)
    here, there = x @ x, []
    other = threading.Thread(target=lambda: there.append(x @ x))
    other.start()
    other.join()
    torch.set_num_threads(1)
    assert torch.equal(here, x @ x) and torch.equal(here, there[0])


def test_ranks_have_one_thread_whatever_the_process_had_before_them():
    torch.set_num_threads(2)
    torch.relu(torch.ones(1 << 20))

    assert host.simulate(threads.threads, 2) == [1, 1]
    assert threads.threads() == 2


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop"])
def test_steps_of_optimizers_do_not_depend_on_the_number_of_threads(name: str):
    def stepped(count: int) -> bytes:
        torch.set_num_threads(count)
        torch.manual_seed(3)
        parameter = nn.Parameter(torch.randn(700, 513))
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1)
        for _ in range(3):
            parameter.grad = torch.randn(700, 513)
            nn.utils.clip_grad_norm_([parameter], 1.0)
            optimizer.step()
        return parameter.detach().numpy().tobytes()

    assert stepped(1) == stepped(3)


def test_a_process_with_more_threads_may_be_forked():
    program = """
import ddpgrad as torch
from ddpgrad.utils.data import DataLoader, Dataset

torch.set_num_threads(2)
large = torch.linspace(-1, 1, 1 << 20)

class Shares(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        torch.set_num_threads(2)
        return torch.relu(large + index).sum()

here = [Shares()[i].item() for i in range(4)]
there = [b.item() for b in DataLoader(Shares(), None, num_workers=2, multiprocessing_context="fork")]
assert here == there == [Shares()[i].item() for i in range(4)], (here, there)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


def test_a_part_that_fails_fails_the_op():
    torch.set_num_threads(3)
    table = torch.randn(5000, 64, requires_grad=True)
    index = torch.arange(9000) % 5000
    out = F.embedding(index, table)
    index.data.fill_(7000)  # behind autograd's back
    with pytest.raises(IndexError, match="out of bounds for a table of 5000 rows"):
        out.sum().backward()


def test_an_interrupted_wait_leaves_no_part_for_the_next_kernel():
    torch.set_num_threads(2)

    def interrupts(first: int, end: int) -> None:
        if first:
            _thread.interrupt_main()
            time.sleep(0.1)

    done = []

    def next_kernel(first: int, end: int) -> None:
        time.sleep(0.2 * first)  # so that it would be missed
        done.append(first)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_parts(interrupts, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    in_parts(next_kernel, 2)
    assert sorted(done) == [0, 1]


def test_lapack_has_as_many_threads_as_the_process_has_set():
    """SciPy's BLAS is another library than NumPy's, and is loaded when a program first needs it."""
    program = """
import ddpgrad as torch
torch.set_num_threads(1)
import scipy.linalg
assert torch.get_num_threads() == 1
torch.linalg.lu_factor(torch.eye(3))
from threadpoolctl import threadpool_info
assert {part["num_threads"] for part in threadpool_info() if part["user_api"] == "blas"} == {1}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
