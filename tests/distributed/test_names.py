"""Names of torch.distributed beside the collectives: meshes, backends, lists of objects, works."""

import collections
import copy
import json
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from replicas import on_ranks, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed import backends
from ddpgrad.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from ddpgrad.errors import LaunchError, TransportError


def test_a_grid_of_ranks():
    def run():
        mesh = dist.init_device_mesh("cpu", (2, 3), mesh_dim_names=("host", "local"))
        rank = dist.get_rank()
        totals = []
        for name in ("host", "local"):
            t = torch.tensor([float(rank)])
            dist.all_reduce(t, group=mesh.get_group(name))
            totals.append(t.item())
        row = mesh["local"]
        assert row.mesh.tolist() == dist.get_process_group_ranks(mesh.get_group("local"))
        assert row.get_local_rank() == mesh.get_local_rank("local") == rank % 3
        line = dist.DeviceMesh("cpu", [1, 4])
        assert (line.get_coordinate() is None) == (rank not in (1, 4))
        assert dist.init_device_mesh("cpu", (2, 2)).mesh.tolist() == [[0, 1], [2, 3]]
        with pytest.raises(RuntimeError, match="Mesh should not be bigger than default world size 6"):
            dist.init_device_mesh("cpu", (7,))
        with pytest.raises(RuntimeError, match="must be unique"):
            dist.init_device_mesh("cpu", (2, 3), mesh_dim_names=("host", "host"))
        with pytest.raises(RuntimeError, match="with index is not supported"):
            dist.init_device_mesh("cpu:0", (6,))
        assert copy.deepcopy(mesh) == mesh
        with mesh as same:
            assert same is mesh
        dist.destroy_process_group()
        return totals

    assert dist.simulate(run, 6) == [[r % 3 * 2 + 3, r // 3 * 9 + 3] for r in range(6)]


def test_objects_from_rank_to_rank():
    def run():
        got = [None, None]
        if dist.get_rank() == 0:
            dist.send_object_list([{"a": (1, b"x")}, None], dst=1)
        elif dist.get_rank() == 1:
            assert dist.recv_object_list(got) == 0
        return got

    assert ranks(3, run)[1] == [{"a": (1, b"x")}, None]


def test_gathers_of_several_tensors():
    def run():
        rank = float(dist.get_rank())
        outputs = [[torch.empty(n) for n in (1, 3)] for _ in range(3)]  # a list a rank
        with pytest.raises(ValueError, match="need 3 output lists"):
            dist.all_gather_coalesced(outputs[:2], [torch.ones(1), torch.ones(3)])
        work = dist.all_gather_coalesced(outputs, [torch.full((n,), rank) for n in (1, 3)], async_op=True)
        work.synchronize()
        assert work.is_success()
        return [[t.tolist() for t in row] for row in outputs]

    assert ranks(3, run)[1] == [[[0.0], [0.0] * 3], [[1.0], [1.0] * 3], [[2.0], [2.0] * 3]]


def test_backends_by_name():
    assert dist.Backend("GLOO") == "gloo"
    with pytest.raises(ValueError, match="unknown backend 'smoke'"):
        dist.Backend("smoke")
    assert dist.get_default_backend_for_device("cuda:0") == "nccl"
    assert dist.get_default_backend_for_device(torch.device("cpu")) == "gloo"
    assert dist.is_backend_available("gloo")
    assert not dist.is_backend_available("ucc")
    assert backends.check("x", "cpu:gloo,cuda:nccl") in ("gloo", "nccl")


@pytest.mark.skipif(dist.is_nccl_available(), reason="there is a GPU and NCCL")
@pytest.mark.parametrize(("asked", "told"), [("gloo", "gloo"), ("cpu:gloo", "gloo"), (None, "virtual")])
def test_the_backend_is_called_as_the_program_did(asked, told):
    def program():
        dist.init_process_group(asked)
        names = dist.get_backend(), dist.get_backend(dist.new_group([0, 1]))
        dist.destroy_process_group()
        return names

    assert dist.simulate(program, 2) == [(told, told)] * 2


def test_nccl_says_what_is_missing():
    with pytest.raises(TransportError, match=r"'nccl' cannot start on rank 0: .*(CuPy|CUDA|NCCL|GPU)"):
        dist.init_process_group("nccl")
    assert not dist.is_initialized()


@pytest.mark.gpu
def test_a_gpu_without_nccl_is_no_reason_for_a_warning():
    program = "import sys; sys.modules['cupy_backends.cuda.libs.nccl'] = None\n"
    program += "from ddpgrad.distributed.transports import nccl; print(nccl.missing())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "CuPy finds no NCCL; install nvidia-nccl-cu12 (or -cu13)\n", done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs a GPU, CuPy and NCCL")
def test_ranks_that_share_a_process_cannot_use_nccl():
    with pytest.raises(TransportError, match="several ranks share a process"):
        dist.simulate(lambda: dist.init_process_group("nccl"), 2)


@on_ranks(2)
def test_complex_numbers_are_summed_and_not_multiplied():
    x = torch.full((2,), 1 + 2j)
    dist.all_reduce(x)
    for call in (dist.all_reduce, dist.reduce):
        with pytest.raises(ValueError, match="'product' is not defined for dtype complex64"):
            call(x, **({"dst": 0} if call is dist.reduce else {}), op=dist.ReduceOp.PRODUCT)
    assert x.tolist() == [2 + 4j, 2 + 4j]


def test_mpi_stands_for_what_carries_the_job():
    def program():
        dist.init_process_group("mpi")
        total = torch.ones(2)
        dist.all_reduce(total)
        group = dist.new_group([0, 1], backend="mpi")
        told = dist.get_backend(), dist.get_backend(group), total.tolist()
        dist.destroy_process_group()
        return told

    assert dist.simulate(program, 2) == [("mpi", "mpi", [2.0, 2.0])] * 2
    assert dist.Backend.default_device_backend_map["cuda"] == "nccl"


def test_asking_for_mpi_does_not_start_it(tmp_path):
    """A process where MPI runs cannot fork, so that the workers of a DataLoader may not start."""
    code = "import sys, ddpgrad.distributed as d; print(d.is_mpi_available(), 'mpi4py.MPI' in sys.modules)"
    for library, told in ({}, "True"), ({"MPI4PY_LIBMPI": str(tmp_path / "none.so")}, "False"):
        out = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | library, capture_output=True, text=True, check=True
        ).stdout
        assert out.split() == [told, "False"]


def test_levels_of_checks_are_read_back(monkeypatch):
    assert dist.get_debug_level() is dist.DebugLevel.OFF
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    dist.set_debug_level(dist.DebugLevel.INFO)
    assert dist.get_debug_level() is dist.DebugLevel.INFO
    dist.set_debug_level_from_env()
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "all")
    with pytest.raises(LaunchError, match="OFF, INFO or DETAIL, got 'ALL'"):
        dist.get_debug_level()
    with pytest.raises(ValueError, match="The value of TORCH_DISTRIBUTED_DEBUG must be"):
        dist.set_debug_level_from_env()


def test_reductions_are_objects_that_can_be_copied_and_carry_a_factor():
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PREMUL_SUM(torch.tensor(2.0))):
        assert isinstance(op, dist.ReduceOp)
        assert copy.deepcopy(op) == pickle.loads(pickle.dumps(op)) == dist.ReduceOp(op) == op
    assert dist.ReduceOp.PREMUL_SUM(2.0).factor == 2.0
    assert (repr(dist.ReduceOp.MAX), dist.ReduceOp.MAX.name) == ("<RedOpType.MAX: 4>", "MAX")
    with pytest.raises(TypeError, match="expected ReduceOp"):
        dist.ReduceOp(3)


TWO = [torch.zeros(2), torch.zeros(2, dtype=torch.float16)]
OTHER_DTYPE = {
    "all_gather": lambda x: dist.all_gather(TWO, x),
    "all_reduce_coalesced": lambda x: dist.all_reduce_coalesced(TWO),
    "reduce_scatter": lambda x: dist.reduce_scatter(x, TWO),
    "all_to_all": lambda x: dist.all_to_all([x, x], TWO),
    "all_to_all_single": lambda x: dist.all_to_all_single(x, x.half()),
    "scatter": lambda x: dist.scatter(x, TWO, src=dist.get_rank()),
    "gather": lambda x: dist.gather(x, TWO, dst=dist.get_rank()),
}


@pytest.mark.parametrize("name", OTHER_DTYPE)
@on_ranks(2)
def test_tensors_of_several_dtypes_are_refused_before_anything_is_sent(name):
    with pytest.raises(ValueError, match="Found float16 and float32"):
        OTHER_DTYPE[name](torch.ones(2))
    dist.barrier()


@on_ranks(2)
def test_complex_numbers_are_summed_beside_real_ones():
    both = [torch.ones(2), torch.full((1,), 1 + 2j)]
    dist.all_reduce_coalesced(both)
    assert [t.tolist() for t in both] == [[2.0, 2.0], [2 + 4j]]


def test_methods_of_a_group_take_options():
    def program():
        world, rank = dist.group.WORLD, dist.get_rank()
        opts = dist.ScatterOptions()
        opts.rootRank = 1
        got, parts = torch.zeros(1), torch.zeros(2)
        world.scatter([got], [[torch.ones(1), torch.ones(1) * 2]] if rank == 1 else [], opts).wait()
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MAX
        most = torch.ones(1) * rank
        world.allreduce([most], opts).wait()
        sent = torch.ones(1) * rank
        world.broadcast(sent, root=1).wait()
        world._allgather_base(parts, got).wait()
        room = [[torch.zeros(1), torch.zeros(1)] if rank == 0 else []]
        world.gather(room, [got], dist.GatherOptions()).wait()
        names = world.group_name, dist.new_group([0, 1]).group_name
        return [got.item(), most.item(), sent.item(), parts.tolist(), [t.item() for t in room[0]], names]

    first, second = ranks(2, program)
    assert first[:5] == [1.0, 1.0, 1.0, [1.0, 2.0], [1.0, 2.0]]
    assert second[:5] == [2.0, 1.0, 1.0, [1.0, 2.0], []]
    assert first[5] == second[5]
    assert len(set(first[5])) == 2


@on_ranks(2)
def test_objects_of_all_ranks_need_room():
    with pytest.raises(IndexError, match="room for 2 objects, got 0"):
        dist.all_gather_object([], 1)


class Chosen:
    """A class of the program's own."""

    def __init__(self, rank):
        self.rank = rank


def test_objects_may_hold_tensors_and_sets():
    def program():
        rank, found = dist.get_rank(), [None] * 2
        lists = [{rank, 7}, torch.full((2,), float(rank))]
        dist.all_gather_object(found, {"rows": torch.arange(rank + 1), "seen": {rank}})
        dist.broadcast_object_list(lists, src=1)
        return [(one["rows"].tolist(), one["seen"]) for one in found], lists[0], lists[1].tolist()

    gathered = [([0], {0}), ([0, 1], {1})]
    assert ranks(2, program) == [(gathered, {1, 7}, [1.0, 1.0])] * 2


@pytest.mark.parametrize(
    "sent",
    [
        np.array([1.0, 2.0], ">f4"),  # with the order of bytes that another kind of computer has
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.array([1.5], ml_dtypes.bfloat16),
        collections.OrderedDict(b=1, a=2),
        np.ma.array([1, 2], mask=[False, True]),
        collections.defaultdict(list, a=[1]),
    ],
    ids=lambda sent: f"{type(sent).__name__}-{getattr(sent, 'dtype', '')}",
)
def test_objects_come_as_they_are_or_are_refused(sent):
    """A mask or a default is not left behind in silence."""

    def program():
        found = [sent if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found)
        return found[0]

    if isinstance(sent, np.ma.MaskedArray | collections.defaultdict):
        with pytest.raises(TypeError, match="is no plain data"):
            ranks(2, program)
        return
    came = ranks(2, program)[1]
    assert type(came) is type(sent) and np.all(came == sent)
    assert getattr(came, "dtype", None) == getattr(sent, "dtype", None)


@on_ranks(2)
def test_a_group_is_named_by_an_array_or_a_tensor():
    for members in (np.arange(2), torch.arange(2)):
        assert dist.new_group(members).ranks == (0, 1)
    with pytest.raises(ValueError, match=r"ranks must be from 0 to 1 and not empty, got \[0, 1, 2\]"):
        dist.new_group(np.arange(3))


@on_ranks(2)
def test_an_object_may_contain_itself():
    own, found = [dist.get_rank()], [None, None]
    own.append(own)
    dist.all_gather_object(found, own)
    assert [one[0] for one in found] == [0, 1] and all(one[1] is one for one in found)


def test_objects_of_other_classes_need_leave():
    def program():
        found = [None] * 2
        dist.all_gather_object(found, Chosen(dist.get_rank()))
        return [one.rank for one in found]

    with pytest.raises(TypeError, match=r"Chosen is no plain data.*allow_pickle\(\) on all ranks"):
        ranks(2, program)
    with pytest.raises(TypeError, match=r"cannot save obj\[0\]\['found'\]\[1\]: .*lambda.* no plain data"):
        ranks(2, lambda: dist.broadcast_object_list([{"found": [1, lambda: 2]}]))
    dist.allow_pickle()
    try:
        assert ranks(2, program) == [[0, 1]] * 2
    finally:
        dist.allow_pickle(False)


def test_a_recorded_function_writes_its_failure_where_torchrun_reads_it(tmp_path, monkeypatch):
    @record
    def main(how):
        if how == "exits":
            sys.exit(0)
        raise ValueError(how)

    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    assert (main("exits"), main.__name__) == (None, "main")
    with pytest.raises(ValueError, match="boom"):
        main("boom")
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert told["message"] == "ValueError: boom"
    assert "in main" in told["extraInfo"]["py_callstack"]

    failures = {
        0: ProcessFailure(0, 7, 1, str(tmp_path / "error.json")),
        1: ProcessFailure(1, 8, -11, str(tmp_path / "absent")),
    }

    @record
    def parent():
        raise ChildFailedError("train.py", failures)

    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "parent.json"))
    with pytest.raises(
        ChildFailedError, match=r"(?s)train\.py FAILED.*Root Cause.*ValueError: boom"
    ) as caught:
        parent()
    assert caught.value.get_first_failure() == (0, failures[0])
    assert "Signal 11 (SIGSEGV) received by PID 8" in str(caught.value)
    assert json.loads((tmp_path / "parent.json").read_text())["message"] == told | {"errorCode": 1}


def test_dimensions_that_are_one_are_known_to_the_whole_mesh():
    def program():
        mesh = dist.init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("replicate", "shard", "tp"))
        mesh["replicate", "shard"]._flatten("dp")
        told = [mesh["dp"].mesh.tolist(), mesh["dp", "tp"].mesh.tolist(), mesh["tp"]._get_root_mesh() is mesh]
        again = mesh["dp", "tp"]
        assert again.get_group("dp") is mesh["dp"].get_group()
        assert mesh._unflatten(0, (2, 1), ("a", "b")).shape == (2, 1, 1, 2)
        for names, error in ((("tp", "dp"), KeyError), (("dp", "shard"), RuntimeError), ("pp", KeyError)):
            with pytest.raises(error):
                mesh[names]
        return told

    whole = [[0, 1], [2, 3]]
    assert ranks(4, program) == [[[r % 2, r % 2 + 2], whole, True] for r in range(4)]
