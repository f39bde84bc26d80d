"""Context parallelism: attention, losses and gradients of divided sequences are those of whole ones."""

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.context_parallel import _cp_options
from ddpgrad.distributed.device_mesh import init_device_mesh
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor.experimental import context_parallel
from ddpgrad.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method


@pytest.fixture(params=[True, False], ids=["balanced", "neighbouring rows"])
def balanced(request):
    _cp_options.enable_load_balance = request.param
    yield request.param
    _cp_options.enable_load_balance = True


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_and_its_gradients_are_those_of_whole_sequences(causal, n, balanced):
    torch.manual_seed(0)
    whole = [torch.randn(2, heads, 4 * n, 5).double() for heads in (4, 2, 2)]
    alone = [t.clone().requires_grad_() for t in whole]
    wanted = F.scaled_dot_product_attention(*alone, is_causal=causal, enable_gqa=True)
    wanted.square().sum().backward()

    def program():
        mesh = init_device_mesh("cpu", (n,))
        parts = [t.clone() for t in whole]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2, 2, 2], no_restore_buffers={parts[2]}):
            assert [t.shape[2] for t in parts] == [4] * 3
            for t in parts:
                t.requires_grad_()
            out = F.scaled_dot_product_attention(*parts, is_causal=causal, enable_gqa=True)
            out.square().sum().backward()
            found = context_parallel_unshard(mesh, [out, *(t.grad for t in parts)], [2] * 4)
        assert all(torch.equal(t, w) for t, w in zip(parts[:2], whole, strict=False))
        assert parts[2].shape[2] == 4
        return [t.numpy() for t in found]

    for found in ranks(n, program):
        for a, b in zip(found, [wanted, *(t.grad for t in alone)], strict=True):
            torch.testing.assert_close(torch.tensor(a), b.detach())


class Reader(nn.Module):
    """A layer of attention over words and their places."""

    def __init__(self, length: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.mix, self.out = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 11)
        self.register_buffer("places", torch.randn(length, 8))

    def forward(self, x):
        q, k, v = (t[:, None] for t in self.mix(self.words(x) + self.places).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0])


def test_a_model_that_is_fully_sharded_over_the_same_ranks_trains_as_alone():
    torch.manual_seed(1)
    x, y = torch.randint(0, 11, (2, 3, 8))
    alone = Reader(8)
    F.cross_entropy(alone(x).flatten(0, 1), y.flatten()).backward()

    def program():
        mesh = init_device_mesh("cpu", (2,))
        model = fully_shard(Reader(8), mesh=mesh)
        words, targets = x.clone(), y.clone()
        with context_parallel(mesh, buffers=[words, targets, model.places], buffer_seq_dims=[1, 1, 0]):
            F.cross_entropy(model(words).flatten(0, 1), targets.flatten()).backward()
        assert model.places.shape[0] == 8
        return [p.grad.full_tensor().numpy() for p in model.parameters()]

    for found in ranks(2, program):
        for a, p in zip(found, alone.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(a), p.grad)


def test_what_cannot_be_divided_is_refused():
    def program():
        mesh, x = init_device_mesh("cpu", (1,)), torch.ones(1, 4, 6)
        with pytest.raises(ValueError, match="same number of elements"), context_parallel(mesh, buffers=[x]):
            pass
        with (
            pytest.raises(ValueError, match="must be a subset"),
            context_parallel(mesh, no_restore_buffers={x}),
        ):
            pass
        with (
            pytest.raises(ValueError, match="7 positions cannot be dealt to 1 ranks in 2 equal parts"),
            context_parallel(mesh, buffers=[torch.ones(7)], buffer_seq_dims=[0]),
        ):
            pass
        with context_parallel(mesh):
            with pytest.raises(NotImplementedError, match="attn_mask"):
                F.scaled_dot_product_attention(x, x, x, torch.ones(4, 4, dtype=torch.bool))
            with pytest.raises(NotImplementedError, match="MultiheadAttention"):
                nn.MultiheadAttention(6, 2)(x, x, x)
        set_rotate_method("alltoall")
        with pytest.raises(NotImplementedError, match="using carry"):
            set_rotate_method("carry")

    ranks(1, program)
