"""The rarer options of `DistributedDataParallel`: mixed precision, delayed gradients, unused parameters that hold up nothing."""

import copy

import pytest
from replicas import batch_for, gradients, on_ranks, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.nn.parallel.distributed import _MixedPrecision
from ddpgrad.utils.checkpoint import checkpoint

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


class Checkpointed(nn.Module):
    """Notes the dtypes that its forward meets, also where it runs again in backward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 20), nn.BatchNorm1d(20), nn.Linear(20, 4)
        self.frozen = nn.Parameter(torch.ones(20), requires_grad=False)
        self.met = set()

    def part(self, x):
        self.met |= {p.dtype for p in self.parameters()} | {x.dtype}
        return torch.tanh(self.norm(self.first(x) * self.frozen))

    def forward(self, x):
        return self.last(checkpoint(self.part, x, use_reentrant=False))


def trained(model, steps=3, **options):
    x, y = batch_for(perceptron)
    ddp = DDP(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(ddp(share(x)).float(), share(y)).backward()
        optimizer.step()
    return ddp


@pytest.mark.parametrize("dtypes", [(F64, None, F64), (BF16,), (BF16, F32), (F16, F16, F16), (F32, BF16)])
def test_mixed_precision_computes_in_one_dtype_and_keeps_another(dtypes):
    policy = _MixedPrecision(*dtypes)

    def program():
        model = Checkpointed()
        ddp = trained(model, mixed_precision=policy)
        assert model.met == {policy.param_dtype}
        assert {p.dtype for p in model.parameters()} == {F32}
        assert {p.grad.dtype for p in model.parameters() if p.requires_grad} == {F32}
        assert model.norm.running_mean.dtype == (policy.buffer_dtype or F32)
        assert model.norm.num_batches_tracked.dtype == torch.int64
        assert trained(copy.deepcopy(ddp).module, 1, mixed_precision=policy).module.met == {
            policy.param_dtype
        }
        got = gradients(model)
        if policy.reduce_dtype in (BF16, F16):
            assert all(
                (torch.as_tensor(g).to(policy.reduce_dtype) == torch.as_tensor(g)).all() for g in got.values()
            )
        with torch.no_grad():
            assert ddp(batch_for(perceptron)[0]).dtype == policy.param_dtype
        return got

    first, second = ranks(2, program)
    (plain, _) = ranks(2, lambda: gradients(trained(Checkpointed()).module))
    for name, gradient in first.items():
        assert (gradient == second[name]).all()
        near = 1e-5 if policy.param_dtype is F64 else 0.03
        assert abs(gradient - plain[name]).max() <= near * max(abs(plain[name]).max(), 0.1)


def test_mixed_precision_gives_the_parameters_back_when_forward_or_backward_fail():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ArithmeticError

    def program():
        model = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 2))
        ddp = DDP(model, mixed_precision=_MixedPrecision(BF16))
        with pytest.raises(RuntimeError):
            ddp(torch.ones(2, 5))
        assert model[0].weight.dtype == F32
        ddp.module[1].register_forward_pre_hook(lambda module, args: Fails.apply(args[0]))
        with pytest.raises(ArithmeticError):
            ddp(torch.ones(2, 6)).sum().backward()
        assert {value.dtype for value in model.state_dict().values()} == {F32}
        again = DDP(perceptron(), mixed_precision=_MixedPrecision(BF16))
        with pytest.raises(RuntimeError, match=r"'weight' of shape \[4, 20\] was replaced"):
            torch.func.functional_call(again, {"module.2.weight": torch.ones(4, 20)}, (torch.ones(2, 6),))

    def other():
        table = nn.Embedding(4, 2, sparse=True)
        with pytest.raises(NotImplementedError, match=r"those of weight are sparse"):
            DDP(table, mixed_precision=_MixedPrecision(BF16))
        with pytest.raises(TypeError, match="must be a _MixedPrecision, got str"):
            DDP(perceptron(), mixed_precision="bf16")

    ranks(1, other)
    ranks(1, program)


def accumulated(hook=None, **options):
    """Gradients of a step of two batches, and what lies in which bucket. delayed: those of the last layer."""
    x, y = batch_for(perceptron)
    model = perceptron()
    if options.pop("delayed", False):
        options["delay_all_reduce_named_params"] = [*model[2].named_parameters("2")]
        options["param_to_hook_all_reduce"] = model[0].weight
    ddp = DDP(model, bucket_cap_mb=1e-5, **options)
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    for _ in range(2):
        ddp.zero_grad()
        with ddp.no_sync():
            F.cross_entropy(ddp(share(x)), share(y)).backward()
        F.cross_entropy(ddp(share(x)), share(y)).backward()
    return gradients(model), [bucket["parameters"] for bucket in ddp.explain()["buckets"]]


def test_delayed_gradients_are_reduced_together_with_the_bits_of_others():
    plain = ranks(3, accumulated)
    for (got, buckets), (expected, _) in zip(ranks(3, lambda: accumulated(delayed=True)), plain, strict=True):
        assert all((got[name] == expected[name]).all() for name in expected)
        assert buckets == [["2.weight", "2.bias"], ["0.weight"], ["0.bias"]]
    hooked = ranks(3, lambda: accumulated(fp16_compress_hook, delayed=True))
    for (got, _), (expected, _) in zip(hooked, plain, strict=True):  # a hook gets the others only
        assert [name for name in expected if (got[name] != expected[name]).any()] == ["0.weight", "0.bias"]


@on_ranks(2)
def test_delayed_gradients_of_what_is_unused_are_zero_as_in_pytorch():
    x, _ = batch_for(perceptron)
    model = perceptron()
    named = [(name, p) for name, p in model.named_parameters() if not name.startswith("0.")]
    ddp = DDP(model, delay_all_reduce_named_params=named, param_to_hook_all_reduce=model[0].weight)
    ddp.module = nn.Sequential(model[0])  # its parameters are what backward uses
    ddp(share(x)).sum().backward()
    assert [p.grad.count_nonzero().item() for p in model.parameters()] == [120, 20, 0, 0]


@on_ranks(1)
def test_what_cannot_be_delayed_is_refused():
    model, other = perceptron(), nn.Linear(1, 1)
    named = [("0.weight", model[0].weight)]
    with pytest.raises(ValueError, match="need to be set at the same time"):
        DDP(model, delay_all_reduce_named_params=named)
    with pytest.raises(ValueError, match="has w, which the ranks do not train"):
        DDP(
            model, delay_all_reduce_named_params=[("w", other.weight)], param_to_hook_all_reduce=model[0].bias
        )
    with pytest.raises(ValueError, match="must be a parameter that requires a gradient"):
        DDP(model, delay_all_reduce_named_params=named, param_to_hook_all_reduce=torch.ones(1))


class Idle(nn.Module):
    """The parameters of `idle`, whose gradients would come first, are used on rank 0 alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.idle = nn.Linear(6, 20), nn.Linear(20, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return self.idle(y) if dist.get_rank() == 0 else y


def test_unused_parameters_hold_up_their_own_bucket_only():
    def program(size):
        ddp = trained(Idle(), 5, bucket_cap_mb=size, find_unused_parameters=True)
        launched = [row[1] for row in ddp.reducer.timed[-1][3]]  # in the last step
        places = sorted(range(len(launched)), key=launched.__getitem__)
        return gradients(ddp.module), [ddp.explain()["buckets"][i]["parameters"][-1] for i in places]

    results, joint = ranks(2, lambda: program(5e-5)), ranks(2, lambda: program(1))
    for (got, launched), (expected, _) in zip(results, joint, strict=True):
        assert all((got[name] == expected[name]).all() for name in expected)
        assert launched == ["second.weight", "first.bias", "first.weight", "idle.weight"]


@on_ranks(2)
def test_buckets_that_nobody_uses_can_be_left_out():
    model = nn.ModuleDict({"used": nn.Linear(6, 4), "idle": nn.Linear(4, 4)})
    model.forward = model["used"].forward
    ddp = DDP(model, find_unused_parameters=True, skip_all_reduce_unused_params=True, bucket_cap_mb=5e-5)
    with pytest.raises(NotImplementedError, match="hooks are told which bucket is the last"):
        ddp.register_comm_hook(None, allreduce_hook)
    for _ in range(2):
        ddp.zero_grad()
        ddp(torch.full((2, 6), dist.get_rank() + 1.0)).sum().backward()
    row = ddp.explain()["buckets"][0]
    assert row["parameters"] == ["idle.bias", "idle.weight"] and row["launched"] == row["finished"]
    assert ([p.grad is None for p in model["idle"].parameters()], model["used"].weight.grad[0, 0].item()) == (
        [True, True],
        3.0,
    )


def test_forward_leaves_the_buffers_where_a_library_asks_for_that() -> None:
    def program() -> list[float]:
        model = DDP(nn.BatchNorm1d(1))
        assert model.require_forward_param_sync
        seen = []
        for model.require_forward_param_sync in (False, True):
            model.module.running_mean.fill_(float(dist.get_rank()))
            model._before_forward()
            seen.append(model.module.running_mean.item())
        return seen

    assert ranks(2, program) == [[0.0, 0.0], [1.0, 0.0]]
