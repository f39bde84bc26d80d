"""Numbers that silently go wrong on one rank: the error is found in time, and the rank is named."""

import re
from collections.abc import Sequence
from itertools import product

import pytest
from matrices import thinned

# Three ranks train ten steps and compare their replicas after every third.
TRAIN = """\
import os
open(f"left-{os.getpid()}", "w").write(os.environ["DDPGRAD_JOB"])
import numpy as np
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
dist.init_process_group()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 40), nn.Linear(40, 3))
ddp = nn.parallel.DistributedDataParallel(model, check_replicas_every=3, bucket_cap_mb=0.004)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=SCALED, init_scale=2.0**127)
me = dist.get_rank() == 1
def flip(tensor, element, bit):
    tensor.detach().numpy().reshape(-1).view(np.uint32)[element] ^= np.uint32(1 << bit)
for step in range(1, 11):
    x = torch.randn(4, 6)
    loss = ddp(x).square().mean()
    FAULT
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("step", step)
print("scale", scaler.get_scale())
"""


MODES = {"processes": [], "procs": ["--procs", "2"], "debug": ["--debug"], "mpi": ["--mpi"]}


def run(ddprun, fault: str, scaled: bool = False, options: Sequence[str] = ("--debug",), end: str = ""):
    body = TRAIN.replace("FAULT", fault).replace("SCALED", str(scaled)) + end
    return ddprun.run("-n", "3", *options, ddprun.script(body, prelude=""))


@pytest.mark.parametrize("bit", thinned([0, 22, 31], 22))
def test_a_flipped_bit_in_one_replica_is_caught_within_k_steps(ddprun, bit):
    result = run(ddprun, f"if step == 4 and me: flip(model[2].weight, 77, {bit})", options=())
    assert result.code == 4, result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert "the replicas have drifted apart: after step 6" in result.said[-1]
    assert re.search(r"of rank 1 is not that of rank 0; .*They were equal after step 3", result.said[-1])
    assert "step 6" in result.out and "step 7" not in result.out


def test_a_flipped_bit_that_makes_all_numbers_nan_is_traced_to_its_rank(ddprun):
    result = run(ddprun, "if step == 4 and me: flip(model[2].weight, 77, 30)")  # the exponent's highest
    assert result.code == 1, result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert "parameters are NaN after step 6: in step 5" in result.said[-2]


def test_a_flipped_bit_in_the_state_of_an_optimizer_is_caught_too(ddprun):
    fault = "if step == 5 and me: flip(optimizer.state[model[3].weight]['exp_avg'], 5, 29)"
    result = run(ddprun, fault)
    assert result.code == 4, result.err
    assert "parameter '3.weight' of rank 1 is not that of rank 0; 1 of 6" in result.said[-2]


def test_nan_on_one_rank_is_traced_to_it(ddprun):
    """Only one gradient is NaN, and no loss: until the averaged update has spread."""
    result = run(
        ddprun,
        "if step == 5 and me: handle = model[2].weight.register_hook(lambda g: g * float('nan'))\n"
        "    elif step > 5 and me: handle.remove()",
    )
    assert result.code == 1, result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    said = r"parameters are NaN after step 6: in step 5 the gradient of '2\.weight' of rank 1 was the first"
    assert re.search(said, result.said[-2]), result.said[-2]


@pytest.mark.parametrize(
    ("mode", "end"),
    thinned(
        [*product(MODES, ["", "dist.destroy_process_group()"])],
        ("processes", "dist.destroy_process_group()"),
        ("debug", ""),
    ),
)
def test_nan_after_the_last_check_is_found_at_the_end(ddprun, mode, end, request):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    fault = "if step == 10 and me: loss = loss * float('nan')"
    result = run(ddprun, fault, options=MODES[mode], end=end)
    assert result.code == 1, result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    said = r"parameters are NaN after step 10: in step 10 the gradient of '3\.(weight|bias)' of rank 1 was the first"
    assert re.search(said, "\n".join(result.said)), result.err


def test_nan_that_an_update_makes_is_found_at_the_end(ddprun):
    result = run(ddprun, "if step == 10: optimizer.param_groups[0]['lr'] = float('nan')")
    assert result.code == 1, result.err
    assert re.search(r"are NaN after step 10, '0\.weight' first, although", result.said[-2])


def test_overflow_under_a_gradient_scaler_is_no_fault(ddprun):
    result = run(ddprun, "loss = loss * 1e4", scaled=True)
    assert result.code == 0, result.err
    scales = {float(line.split()[-1]) for line in result.out.splitlines() if "scale" in line}
    assert len(scales) == 1 and scales.pop() < 2.0**127


# For TRAIN, of larger layers: a process 1 whose sums of many elements are wrong in step 5.
ERRS = """\
from ddpgrad.distributed.protocol import tree
right = tree.reduce_into
def errs(outputs, inputs, *options):
    right(outputs, inputs, *options)
    if me and step == 5 and len(outputs) == PARTS:
        for output in outputs[FLIPPED]:
            flip(torch.from_numpy(output), 7, 3)
tree.reduce_into = errs
"""


@pytest.mark.parametrize(
    ("parts", "flipped", "said"),
    [
        (3, ":", "element 53703 was summed wrong by the process of rank 1, and all ranks have that"),
        (3, "2:", "rank 2 got another sum than the rest, from element 53703 on"),
        (1, ":", "the sum was right, and rank 1 erred in the second one"),
    ],
)
def test_a_flipped_bit_in_a_sum_is_found_by_a_second_sum(ddprun, parts, flipped, said):
    errs = ERRS.replace("PARTS", str(parts)).replace("FLIPPED", flipped)
    body = TRAIN.replace("FAULT", "").replace("SCALED", "False").replace("for step", f"{errs}for step", 1)
    body = body.replace("40", "400").replace("0.004", "0.2")
    result = ddprun.run("-n", "3", "--verify", "recompute=1/1", ddprun.script(body, prelude=""))
    assert result.code == 4, result.err
    assert "the bits differ: in step 5, in the bucket of '3.weight, 3.bias, 2.weight'" in result.said[-1]
    assert said in result.said[-1]


def test_second_sums_change_nothing(ddprun):
    plain, verified = (
        run(ddprun, "print(step, loss.item())", options=options, end=end)
        for options, end in (
            (["--debug"], ""),
            (
                ["--debug", "--verify", "recompute=1/2"],
                "assert 3 < ddp.reducer.sums.checks < 20",
            ),  # of 20 sums
        )
    )
    assert plain.code == verified.code == 0, verified.err
    assert sorted(verified.out.splitlines()) == sorted(plain.out.splitlines())
