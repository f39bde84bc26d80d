"""Tensors on meta as programs use them: models that are built without memory and get their values later."""

import copy
import io
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import errors, nn


class Block(nn.Module):
    """A layer of a language model, of `width` features and four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 4, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(attended.transpose(1, 2).reshape(batch, length, width), 0.1)
        return x + self.down(F.gelu(self.up(x)))


def test_a_model_larger_than_any_memory_is_built_run_and_differentiated():
    width, layers = 1 << 17, 8  # 1.6 million million parameters
    state = torch.get_rng_state()
    tracemalloc.start()
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(1 << 20, width), *[Block(width) for _ in range(layers)])
    logits = F.linear(model(torch.zeros(64, 1 << 16, dtype=torch.int64, device="meta")), model[0].weight)
    loss = F.cross_entropy(logits.flatten(0, 1), torch.zeros(1 << 22, dtype=torch.int64, device="meta"))
    loss.backward()
    optimizer = torch.optim.AdamW(model.parameters())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert logits.shape == (64, 1 << 16, 1 << 20) and loss.shape == ()
    assert all(p.grad is not None and p.grad.shape == p.shape and p.grad.is_meta for p in model.parameters())
    assert sum(p.nbytes for p in model.parameters()) > 1 << 42 and peak < 1 << 26
    assert torch.equal(state, torch.get_rng_state()), "what is not drawn was drawn"


def test_every_way_to_make_one():
    source = torch.arange(6.0).reshape(2, 3)
    made = [
        torch.empty(2, 3, device="meta"), torch.zeros(2, 3, device=torch.device("meta", 0)),
        torch.full((2, 3), 1.0, device="meta"), torch.randn(2, 3, device="meta"), torch.eye(2, 3, device="meta"),
        torch.tensor([[1.0, 2, 3]] * 2, device="meta"), source.to("meta"), torch.empty_like(source, device="meta"),
        torch.linspace(0, 1, 6, device="meta").view(2, 3), torch.empty_strided((2, 3), (3, 1), device="meta"),
        torch.normal(0.0, 1.0, (2, 3), device="meta"), source.to("meta").uniform_().bernoulli_(0.5),
    ]  # fmt: skip
    with torch.device("meta"):
        made += [torch.rand(2, 3), torch.Tensor.new_zeros(torch.ones(1), 2, 3), nn.Linear(3, 2).weight]
        assert source.new_ones(2).is_cpu
    torch.set_default_device("meta")
    try:
        made += [torch.ones(2, 3), torch.tensor([[1.0] * 3] * 2)]
        assert torch.arange(3).dtype is torch.int64 and torch.randperm(4).shape == (4,)
        made += [f(6).view(2, 3) for f in (torch.hann_window, torch.fft.fftfreq)]
        assert torch.tril_indices(2, 2).is_meta and torch.LongTensor([1]).is_cpu
    finally:
        torch.set_default_device(None)
    for t in made:
        assert t.is_meta and not t.is_cpu and not t.is_cuda and t.device == torch.device("meta")
        assert (t.shape, t.dtype, t.stride(), t.nbytes) == ((2, 3), torch.float32, (3, 1), 24)
    assert made[0].untyped_storage().nbytes() == 24 and made[0].data_ptr() == 0


def test_threads_have_a_default_device_of_their_own():
    with ThreadPoolExecutor(1) as thread, torch.device("meta"):
        assert thread.submit(torch.ones, 2).result().tolist() == [1.0, 1.0]
        thread.submit(torch.set_default_device, "meta").result()
        assert thread.submit(torch.ones, 2).result().is_meta
    assert torch.ones(2).is_cpu


def test_views_lie_where_they_would():
    x = torch.empty(4, 6, 8, device="meta")
    y = x[1:, ::2].transpose(1, 2)
    assert (y.shape, y.stride(), y.storage_offset(), y._base) == ((3, 8, 3), (48, 1, 16), 48, x)
    assert not y.is_contiguous() and y.contiguous().stride() == (24, 3, 1) and (y + 1).stride() == (24, 1, 8)
    assert x.view(24, 8).stride() == (8, 1) and y.reshape(-1).shape == (72,)
    with pytest.raises(RuntimeError, match="view"):
        y.view(-1)
    assert x.unfold(2, 4, 2).shape == (4, 6, 3, 4) and x.diagonal().stride() == (1, 56)
    assert torch.view_as_complex(x.view(4, 6, 4, 2)).stride() == (24, 4, 1)
    version = x._version
    x[0, torch.tensor([1, 2])] = 5
    x.mul_(2).copy_(torch.ones(8))
    assert x._version == version + 3
    assert x[torch.tensor([[True] * 6] * 4)].shape == (24, 8), "a mask on the host has elements to count"
    for wrong in (
        lambda: x.copy_(torch.ones(3)),
        lambda: x.view(5, 5),
        lambda: x @ x,
        lambda: x + x[..., :3],
    ):
        with pytest.raises(RuntimeError):
            wrong()


def test_what_needs_elements_says_so():
    x = torch.ones(2, 3, device="meta")
    one = x.sum()
    for use in (one.item, lambda: bool(one), lambda: float(one), lambda: int(one), lambda: [0][one.long()]):
        with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
            use()
    for use in (x.tolist, x.cpu, lambda: x.numpy(force=True), lambda: torch.ones(2, 3).copy_(x)):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            use()
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        x.numpy()
    for use in (x.nonzero, lambda: x[x > 0], lambda: x.masked_select(x > 0), lambda: torch.unique(x)):
        with pytest.raises(errors.NoElementsError, match="depends on"):
            use()
    with pytest.raises(errors.NoElementsError, match=r"nonzero\(\)"):
        x.nonzero()
    for mixed in (
        lambda: x + torch.ones(2, 3),
        lambda: torch.ones(4, 2) @ x,
        lambda: F.linear(x, torch.ones(2, 3)),
    ):
        with pytest.raises(errors.DeviceError, match="cpu and meta"):
            mixed()
    assert (x + torch.tensor(1.0)).is_meta
    torch.testing.assert_close(x, x + 1)
    with pytest.raises(AssertionError, match="'shape' do not match"):
        torch.testing.assert_close(x, one)


def test_text():
    x = torch.empty(2, 3, device="meta", dtype=torch.int64)
    assert repr(x) == "tensor(..., device='meta', size=(2, 3), dtype=torch.int64)"
    assert f"{x.float().sum()}" == "tensor(..., device='meta', size=())"
    parameter = nn.Parameter(torch.empty(2, device="meta"))
    expected = "tensor(..., device='meta', size=(2,), requires_grad=True)"
    assert repr(parameter) == f"Parameter containing:\n{expected}"
    assert repr(x.untyped_storage()).startswith("...\n") and x.type() == "torch.meta.LongTensor"


def test_a_module_gets_its_values_later():
    source = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with pytest.raises(NotImplementedError, match=r"no data! Please use torch.nn.Module.to_empty\(\)"):
        model.to("cpu")
    with pytest.warns(UserWarning, match="which is a no-op"):
        model.load_state_dict(source.state_dict())
    with pytest.raises(RuntimeError, match=r'parameter named "0.weight".*no data!'):
        source.load_state_dict(model.state_dict())
    twin = copy.deepcopy(model).to_empty(device="cpu")
    twin.load_state_dict(source.state_dict())
    model.load_state_dict(source.state_dict(), assign=True)
    x = torch.randn(5, 3)
    assert torch.equal(model(x), source(x)) and torch.equal(twin(x), source(x))
    assert isinstance(model[0].weight, nn.Parameter) and not any(
        t.is_meta for t in model.state_dict().values()
    )
    assert nn.utils.skip_init(nn.Linear, 2, 3).weight.is_cpu
    with pytest.raises(RuntimeError, match=r"DistributedDataParallel: 0.weight, .* lie on meta"):
        nn.parallel.DistributedDataParallel(source.to("meta"))


def test_initialisers_leave_it_as_it_is():
    x = torch.empty(4, 4, device="meta")
    for fill in (
        nn.init.orthogonal_,
        nn.init.trunc_normal_,
        nn.init.kaiming_normal_,
        nn.init.eye_,
        nn.init.dirac_,
    ):
        assert fill(x if fill is not nn.init.dirac_ else x.view(4, 4, 1)).is_meta
    assert nn.init.sparse_(x, 0.1) is x


class Empty(torch.overrides.TorchFunctionMode):
    """Leaves initial values out, as trainers do that load others."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__module__.endswith("nn.init"):
            return args[0] if args else kwargs["tensor"]
        return super().__torch_function__(func, types, args, kwargs)


def test_initial_values_can_be_left_out():
    state = torch.get_rng_state()
    with Empty():
        nn.TransformerEncoderLayer(8, 2)
        assert torch.overrides.has_torch_function(())
        asked = torch.overrides.handle_torch_function(nn.init.zeros_, (), torch.ones(2))
    assert asked.tolist() == [1, 1] and torch.equal(state, torch.get_rng_state())
    assert nn.init.zeros_(asked).tolist() == [0, 0] and not torch.overrides.has_torch_function(())
    with pytest.raises(ZeroDivisionError), Empty(), Empty():
        torch.overrides.handle_torch_function(lambda: 1 / 0, ())
    nn.Linear(2, 2)
    assert not torch.equal(state, torch.get_rng_state())


def test_in_files():
    state = {"a": nn.Parameter(torch.empty(2, 3, device="meta").t()), "b": torch.ones(2)}
    file = io.BytesIO()
    torch.save(state, file)
    loaded = torch.load(io.BytesIO(file.getvalue()))
    assert loaded["a"].is_meta and loaded["a"].stride() == (1, 3) and loaded["a"].requires_grad
    assert loaded["b"].tolist() == [1, 1]
    moved = torch.load(io.BytesIO(file.getvalue()), map_location="meta")["b"]
    assert moved.is_meta and moved.shape == (2,)
    assert pickle.loads(pickle.dumps(state["a"])).stride() == (1, 3)
