"""`FullyShardedDataParallel`: programs that were written for it, with the bits of DistributedDataParallel."""

from functools import partial

import numpy as np
import pytest
from replicas import Words, batch_for, on_ranks, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.fsdp import (
    FSDPModule,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictType,
)
from ddpgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
from ddpgrad.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    enable_wrap,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
)
from ddpgrad.distributed.tensor import DTensor
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

POLICIES = {
    "the whole": None,
    "classes": ModuleWrapPolicy({nn.Embedding, nn.Linear}),
    "transformer": partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear}),
    "size": partial(size_based_auto_wrap_policy, min_num_params=500),
    "own options": CustomPolicy(
        lambda m: {"mixed_precision": None} if isinstance(m, nn.Linear) else isinstance(m, nn.Embedding)
    ),
}


def deep() -> nn.Module:
    """A model with untied parts, so that each may be a group."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 40), nn.GELU(), nn.Linear(40, 9))


def step(model, optimizer, clip):
    x, y = (share(t) for t in batch_for(Words))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).reshape(-1, 9), y.reshape(-1))
    loss.backward()
    norm = clip(model)
    optimizer.step()
    return loss.item().hex(), norm.item().hex()


def by_ddp():
    ddp = DDP(deep())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    told = [step(ddp, optimizer, lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5)) for _ in range(4)]
    return told, {name: t.numpy().copy() for name, t in ddp.state_dict().items()}


def by_fsdp(**options):
    model = FSDP(deep(), **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, [step(model, optimizer, lambda m: m.clip_grad_norm_(0.5)) for _ in range(4)]


def assert_same(states, others) -> None:
    assert list(states) == list(others)
    for name, array in others.items():
        np.testing.assert_array_equal(states[name], array, err_msg=name)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "strategy", [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD]
)
def test_losses_norms_and_parameters_have_the_bits_of_ddp(policy, strategy):
    def program():
        model, _, told = by_fsdp(auto_wrap_policy=POLICIES[policy], sharding_strategy=strategy)
        groups = sum(isinstance(m, FSDPModule) for m in model.modules())
        assert groups == {"the whole": 1, "transformer": 3, "size": 2}.get(policy, 4)
        whole = strategy is ShardingStrategy.NO_SHARD
        share = sum(p.to_local().numel() for p in model.parameters()) / sum(
            p.numel() for p in model.parameters()
        )
        assert share == pytest.approx(1.0 if whole else 0.5, abs=0.05)
        return told, {name: t.numpy().copy() for name, t in model.state_dict().items()}

    for (told, state), (expected, other) in zip(ranks(2, program), ranks(2, by_ddp), strict=True):
        assert told == expected
        assert_same(state, other)


def test_states_are_whole_or_rows_and_go_on_elsewhere():
    """Saved by names on two ranks, whole; loaded on three, and into what is wrapped otherwise."""

    def save():
        model, optimizer, _ = by_fsdp(auto_wrap_policy=POLICIES["classes"])
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            rows = model.state_dict()["1.weight"]
            assert rows.shape == (40, 16) and rows.to_local().shape == (20, 16)
        only = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *only):
            saved = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
            assert FSDP.get_state_dict_type(model).state_dict_config == only[0]
        assert bool(saved[0]) == bool(saved[1]) == (dist.get_rank() == 0)
        if dist.get_rank() == 0:
            assert saved[1]["state"]["3.bias"]["exp_avg"].shape == (9,)
            assert all(
                p.device.type == "cpu" for values in saved[1]["state"].values() for p in values.values()
            )
        older = FSDP.full_optim_state_dict(model, optimizer)
        assert repr(older) == repr(saved[1])
        rows = FSDP.sharded_optim_state_dict(model, optimizer)
        assert rows["state"]["1.weight"]["exp_avg"].to_local().shape == (20, 16)
        numbered = FSDP.flatten_sharded_optim_state_dict(rows, model, optimizer)
        assert repr(numbered) == repr(optimizer.state_dict())
        numbered["param_groups"][0]["lr"] = 0.5
        assert FSDP.optim_state_dict(model, optimizer, numbered)["param_groups"][0]["lr"] == 0.5
        assert FSDP.get_state_dict_type(model).state_dict_config == FullStateDictConfig()
        return saved

    saved = ranks(2, save)[0]

    def go_on():
        model = FSDP(nn.Sequential(*deep()), auto_wrap_policy=POLICIES["size"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model.load_state_dict(saved[0])
        told = saved[1] if dist.get_rank() == 0 else None
        FSDP.optim_state_dict_to_load(model, optimizer, saved[1], load_directly=True)
        state = repr(optimizer.state_dict())
        optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(told, model, optim=optimizer))
        assert repr(optimizer.state_dict()) == state
        return step(model, optimizer, lambda m: m.clip_grad_norm_(0.5))

    def plain():
        model = deep()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model.load_state_dict(saved[0])
        numbered = FSDP.rekey_optim_state_dict(saved[1], OptimStateKeyType.PARAM_ID, model)
        assert list(numbered["state"]) == numbered["param_groups"][0]["params"] == list(range(5))
        named = FSDP.rekey_optim_state_dict(numbered, OptimStateKeyType.PARAM_NAME, model, model.parameters())
        assert repr(named) == repr(saved[1])
        optimizer.load_state_dict(numbered)
        ddp = DDP(model)
        return step(ddp, optimizer, lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5))

    assert ranks(3, go_on) == ranks(3, plain)


class Around(nn.Module):
    """A model that wraps its parts by itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = deep()
        with enable_wrap(wrapper_cls=FSDP):
            self.table, self.up = wrap(parts[0]), wrap(parts[1])
        assert wrap(parts[3]) is parts[3]
        self.down = parts[3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.table(x))))


def test_parts_that_are_wrapped_by_hand_keep_their_names():
    def program():
        model = FSDP(Around())
        assert [name for name, _ in model.named_parameters()] == [
            "table.weight", "up.weight", "up.bias", "down.weight", "down.bias"
        ]  # fmt: skip
        assert len(FSDP.fsdp_modules(model)) == 3 and FSDP.fsdp_modules(model, root_only=True) == [model]
        assert model.down is model.module.down
        with FSDP.summon_full_params(model, recurse=False):
            kinds = [isinstance(p, DTensor) for p in model.parameters()]
        assert kinds == [True, True, True, False, False]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        told = [step(model, optimizer, lambda m: m.clip_grad_norm_(0.5)) for _ in range(4)]
        state = model.state_dict()
        assert list(FSDP.optim_state_dict(model, optimizer)["state"]) == list(state)
        other = FSDP(Around())
        other.load_state_dict(state)
        assert_same(
            {n: t.numpy() for n, t in other.state_dict().items()}, {n: t.numpy() for n, t in state.items()}
        )
        return told

    assert ranks(2, program)[0] == ranks(2, by_ddp)[0][0]


def test_no_sync_adds_up_and_whole_parameters_can_be_changed():
    def program(wrapped):
        model = FSDP(deep()) if wrapped else DDP(deep())
        x = batch_for(Words)[0]
        halves = share(x).chunk(2)
        with model.no_sync():
            model(halves[0]).square().mean().backward()
        model(halves[1]).square().mean().backward()
        grads = [p.grad.full_tensor() if wrapped else p.grad for p in model.parameters()]
        found = [g.numpy().copy() for g in grads]
        if wrapped:
            with FSDP.summon_full_params(model):
                assert model.module[1].weight.shape == (40, 16)
                with torch.no_grad():
                    model.module[1].weight.fill_(2.0)
            with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
                assert model.module[1].weight.min().item() == 2.0
                model.module[1].weight.fill_(3.0)
            assert model.state_dict()["1.weight"].max().item() == 2.0
            with FSDP.summon_full_params(model, with_grads=True, offload_to_cpu=True):
                for p, g in zip(model.module.parameters(), found, strict=True):
                    np.testing.assert_array_equal(p.grad.numpy(), g)
                    p.grad.mul_(2)
            np.testing.assert_array_equal(model.module[1].weight.grad.full_tensor().numpy(), found[1] * 2)
        return found

    for got, expected in zip(
        ranks(2, lambda: program(True))[0], ranks(2, lambda: program(False))[0], strict=True
    ):
        np.testing.assert_array_equal(got, expected)


class Partly(nn.Module):
    """`own` is each rank's, and the rest has no values yet."""

    def __init__(self) -> None:
        super().__init__()
        with torch.device("meta"):
            self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        self.own = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def test_meta_modules_dtypes_and_what_a_rank_keeps():
    def program():
        torch.manual_seed(dist.get_rank())
        model = Partly()
        precision = MixedPrecision(torch.bfloat16, torch.float32, buffer_dtype=torch.float64)
        fsdp = FSDP(model, ignored_modules=[model.own], mixed_precision=precision)
        assert model.body[1].running_mean.dtype == torch.float64
        assert fsdp.eval()(torch.ones(3, 4)).dtype == torch.bfloat16
        state = fsdp.state_dict()
        return state["body.0.weight"].numpy().copy(), state["own.weight"].numpy().copy()

    (first, mine), (second, other) = ranks(2, program)
    assert np.array_equal(first, second) and np.isfinite(first).all() and first.any()
    assert not np.array_equal(mine, other)


@on_ranks(2)
def test_parts_have_precisions_of_their_own():
    """Norms over batches compute in float32, with their buffers, and others as the policy says."""
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    own = {
        "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,
        "mixed_precision": MixedPrecision(torch.float16, cast_forward_inputs=True),
    }
    precision = MixedPrecision(torch.bfloat16, buffer_dtype=torch.bfloat16)
    policy = CustomPolicy(lambda m: own if m is body[2] else False)
    model, seen = FSDP(body, mixed_precision=precision, auto_wrap_policy=policy), []
    for part in body:
        part.register_forward_pre_hook(lambda m, args: seen.append((m.weight.dtype, args[0].dtype)))
    model(torch.randn(3, 4))
    assert seen == [(torch.bfloat16,) * 2, (torch.float32,) * 2, (torch.float16,) * 2]
    assert body[1].running_mean.dtype == torch.float32
    assert isinstance(body[1].weight, DTensor) and not isinstance(body[2].weight, DTensor)


@on_ranks(1)
def test_mistakes_are_told():
    for own, text in (
        ({"cpu_offload": 1}, "cpu_offload for"),
        ({"sharding_strategy": ShardingStrategy.NO_SHARD}, "NO_SHARD"),
    ):
        with pytest.raises(NotImplementedError, match=f"{text}.* Linear alone"):
            FSDP(
                deep(),
                auto_wrap_policy=CustomPolicy(lambda m, own=own: own if isinstance(m, nn.Linear) else False),
            )
    with pytest.raises(ValueError, match="expected True, False or a dict of options for a Embedding, got 1"):
        FSDP(deep(), auto_wrap_policy=CustomPolicy(lambda m: 1))
    with pytest.raises(NotImplementedError, match="NO_SHARD: use DistributedDataParallel"):
        FSDP(deep(), sharding_strategy=ShardingStrategy.NO_SHARD, nonfinite_gradients="skip")
    model = FSDP(deep())
    with pytest.raises(NotImplementedError, match="expected FULL_STATE_DICT or SHARDED_STATE_DICT"):
        FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    with pytest.raises(RuntimeError, match="SHARDED_STATE_DICT takes a ShardedStateDictConfig"):
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, FullStateDictConfig())
    with pytest.raises(ValueError, match="Sequential is no FullyShardedDataParallel"):
        FSDP.get_state_dict_type(deep())
    with (
        pytest.raises(NotImplementedError, match="pass writeback=False"),
        FSDP.summon_full_params(model, rank0_only=True),
    ):
        pass
    state = {"state": {"4.weight": {}}, "param_groups": []}
    with pytest.raises(ValueError, match=r"has a parameter '4.weight', and the model these: 0.weight"):
        FSDP.shard_full_optim_state_dict(state, model)
    with pytest.raises(AttributeError, match="no attribute 'wieght'"):
        _ = model.wieght
    assert isinstance(model[1], nn.Linear)
