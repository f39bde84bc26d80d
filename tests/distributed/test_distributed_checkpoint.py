"""`torch.distributed.checkpoint`: any number of ranks loads what any number saved, all or nothing, on all ranks alike."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpointed import App, resumed, saved
from replicas import perceptron, ranks
from sharded import adamw, sharded

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.checkpoint import state_dict as sd
from ddpgrad.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor
from ddpgrad.errors import CheckpointError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def test_a_divided_model_goes_on_at_any_number_of_ranks_and_under_any_wrapper(tmp_path: Path):
    then, end = ranks(2, lambda: saved(tmp_path / "run" / "a"))[0]
    assert ranks(2, lambda: resumed(tmp_path / "run" / "a")) == [(then, end)] * 2
    for wrap, counts in ((sharded, (1, 4)), (DDP, (2, 3)), (lambda m: m, (1,))):
        for count in counts:
            found = ranks(count, lambda wrap=wrap: resumed(tmp_path / "run" / "a", wrap, 0))
            assert found == [(then, then)] * count
    assert os.listdir(tmp_path / "run") == ["a"]


def test_a_replicated_model_is_loaded_by_a_divided_one(tmp_path: Path):
    def program():
        app = App(DDP)
        app.steps(2)
        dcp.save({"app": app, "notes": {"epoch": 1, "losses": [0.5, 0.25]}}, checkpoint_id=tmp_path)
        return app.digests()

    then = ranks(2, program)[0]
    assert ranks(3, lambda: resumed(tmp_path, steps=0)) == [(then, then)] * 3
    places = dcp.FileSystemReader(tmp_path).read_metadata().storage_data
    sizes = {
        rank: sum(i.length for i in places.values() if f"__{rank}_" in i.relative_path) for rank in (0, 1)
    }
    assert sorted(os.listdir(tmp_path)) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert 0.5 < sizes[0] / sizes[1] < 2  # each wrote a half


def test_tensors_of_any_dtype_are_loaded_as_they_were(tmp_path: Path):
    names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    dtypes = [getattr(torch, name) for name in (*names, "complex64", "complex128")]

    def program():
        before = {str(d): torch.tensor([[1, 0, 3]]).to(d) for d in dtypes} | {"scalar": torch.tensor(True)}
        dcp.save(before, checkpoint_id=tmp_path / "a")
        after = {name: torch.zeros_like(t) for name, t in before.items()}
        dcp.load(after, checkpoint_id=tmp_path / "a")
        return all(torch.equal(after[name], t) and after[name].dtype is t.dtype for name, t in before.items())

    assert ranks(2, program) == [True, True]


@pytest.mark.full
def test_processes_have_the_bits_of_virtual_ranks(tmp_path: Path):
    program = Path(__file__).with_name("checkpointed.py")

    def printed(what: str) -> str:
        ddprun = [sys.executable, "-m", "ddpgrad.launcher", "-n", "2"]
        command = [*ddprun, str(program), what, str(tmp_path / "a")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip().split("] ", 1)[-1]

    then, end = ranks(2, lambda: saved(tmp_path / "b"))[0]
    assert printed("save") == printed("load") == f"{then[0]};{end[0]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of two ranks: 2.0 in a divided tensor of 5 rows, 2 in a list."""
    ranks(2, lambda: dcp.save(state(2.0), checkpoint_id=tmp_path / "a"))
    return tmp_path / "a"


def state(value: float, rows: int = 5) -> dict[str, Any]:
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    table = torch.arange(2.0 * rows).reshape(rows, 2) + value
    divided = dist.tensor.distribute_tensor(table, mesh, [dist.tensor.Shard(0)])
    few = [torch.full((2,), value), "x", {"rows": divided.clone()}]
    return {"table": divided, "notes": {"seen": [value], "few": few}}


def values(state: dict[str, Any]) -> list[Any]:
    few = state["notes"]["few"]
    divided = [tensor.full_tensor()[0, 0].item() for tensor in (state["table"], few[2]["rows"])]
    return [*divided, state["notes"]["seen"][0], few[0].tolist()[0]]


def loaded(folder: Path, *args: Any) -> list[Any]:
    into = state(0.0, *args)
    kept = into["notes"]["few"][0]
    dcp.load(into, storage_reader=dcp.FileSystemReader(folder))
    assert into["notes"]["few"][0] is kept
    return values(into)


def test_every_damaged_byte_is_found_and_nothing_is_changed(folder: Path):
    def refused(file: Path, reason: str) -> None:
        def program():
            into = state(0.0)
            with pytest.raises(dcp.CheckpointException, match=f"rank [01]: .*{file.name} .*{reason}"):
                dcp.load(into, checkpoint_id=folder)
            assert values(into) == [0.0] * 4

        ranks(2, program)

    assert len(list(folder.iterdir())) == 3
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for position in {*range(0, len(whole), 97), len(whole) - 1}:
            flipped = bytearray(whole)
            flipped[position] ^= 1 << position % 8
            file.write_bytes(flipped)
            refused(file, "has changed")
        file.write_bytes(whole[: len(whole) // 2])
        refused(file, "is truncated")
        file.unlink()
        refused(file, "is missing")
        file.write_bytes(whole)
    assert ranks(3, lambda: loaded(folder)) == [[2.0] * 4] * 3


def test_a_crash_at_any_moment_leaves_the_old_or_the_new_checkpoint(folder: Path, monkeypatch):
    class Crash(BaseException):
        """Power loss."""

    outcomes, moment = set(), 0
    while True:
        left = folder.parent / f"crash {moment}"
        shutil.copytree(folder, left)
        calls = [0]

        def stop(function: Any, calls: list[int] = calls, moment: int = moment) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                calls[0] += 1
                if calls[0] > moment:
                    raise Crash
                return function(*args, **options)

            return call

        with monkeypatch.context() as patch:
            for owner, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (os, "unlink")):
                patch.setattr(owner, name, stop(getattr(owner, name)))
            try:
                ranks(1, lambda left=left: dcp.save(state(3.0), checkpoint_id=left))
                through = True
            except Crash:
                through = False
        found = ranks(2, lambda left=left: loaded(left))[0]
        assert found in ([2.0] * 4, [3.0] * 4)
        outcomes.add(found[0])
        ranks(2, lambda left=left: dcp.save(state(4.0), checkpoint_id=left))
        assert ranks(1, lambda left=left: loaded(left)) == [[4.0] * 4]
        assert len(os.listdir(left)) == 3  # `.metadata`, and what it names
        if through:
            break
        moment += 1
    assert outcomes == {2.0, 3.0} and moment > 6


def test_an_error_on_one_rank_is_raised_on_all(folder: Path, monkeypatch, capfd):
    real, is_full = os.fsync, [True]

    def full(descriptor: int) -> None:
        if dist.get_rank() == 1 and is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    def program():
        with pytest.raises(CheckpointError, match=r"rank 1: .*No space left"):
            dcp.save(state(5.0), checkpoint_id=folder)
        with pytest.raises(dcp.CheckpointException, match=r"rank 1: .*No space left") as caught:
            dcp.async_save(state(5.0), checkpoint_id=folder).result()
        assert isinstance(caught.value.failures[1][0], OSError)
        into = state(0.0)
        table = into["table"]
        if dist.get_rank() == 1:
            into["tabel"] = into.pop("table")
        with pytest.raises(dcp.CheckpointException, match=r"rank 1: .*Missing key .*tabel.* such as 'table'"):
            dcp.load(into, checkpoint_id=folder)
        assert values({**into, "table": table}) == [0.0] * 4
        dcp.load(into, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
        assert into["notes"]["seen"] == [2.0]
        with pytest.raises(
            dcp.CheckpointException,
            match=r"Size mismatch between saved torch.Size\(\[5, 2\]\) and .*\[6, 2\].* for .*",
        ):
            loaded(folder, 6)
        dist.barrier()
        is_full[0] = False
        return loaded(folder)

    monkeypatch.setattr(os, "fsync", full)
    assert ranks(2, program) == [[2.0] * 4] * 2
    assert os.listdir(folder.parent) == ["a"]
    assert "async_save: rank 1" in capfd.readouterr().err


def test_a_checkpoint_under_way_is_written_before_groups_are_left(tmp_path: Path):
    ranks(2, lambda: dcp.async_save({"own": torch.ones(3)}, checkpoint_id=tmp_path / "a") and None)
    dcp.load(into := {"own": torch.zeros(3)}, checkpoint_id=tmp_path / "a")
    assert into["own"].tolist() == [1.0] * 3


def test_training_goes_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch):
    """Nothing is visible until all is stored; saves of one place come one after the other."""
    stored, real = threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        assert stored.wait(600)
        real(descriptor)

    def program():
        tensor = torch.ones(3) * dist.get_rank()
        saves = []
        for _ in range(3):
            saves.append(dcp.async_save({"own": {dist.get_rank(): tensor}}, checkpoint_id=tmp_path / "a"))
            tensor += 10
            dist.all_reduce(tensor.clone())
        assert not (tmp_path / "a" / ".metadata").exists() and not saves[0].done()
        dist.barrier()
        stored.set()
        described: dict[str, Any] = saves[2].result().state_dict_metadata
        assert [described[f"own.{rank}"].properties.dtype for rank in (0, 1)] == [torch.float32] * 2
        assert saves[0].done() and saves[1].done()

    monkeypatch.setattr(os, "fsync", slow)
    ranks(2, program)
    into = {"own.1": torch.zeros(3), "own": {0: torch.zeros(3)}}
    dcp.load(into, checkpoint_id=tmp_path / "a")
    assert into["own.1"].tolist() == [21.0] * 3 and into["own"][0].tolist() == [20.0] * 3


def test_mistakes_are_told(folder: Path):
    def differing():
        dcp.save({"x": torch.ones(2 + dist.get_rank())}, checkpoint_id=folder)

    class Broken:
        def state_dict(self):
            return {} if dist.get_rank() else {}["gone"]

        def load_state_dict(self, state_dict): ...

    keep = dcp.FileSystemWriter(folder, overwrite=False)
    (theirs := folder.parent / "step_00000001").mkdir()
    (theirs / "MANIFEST.json").write_text("{}")
    mistakes: list[tuple[Any, type[Exception], str]] = [
        (differing, CheckpointError, r"'x' as tensor of float32 with shape \[2\] on rank 0, and .*\[3\] on rank 1"),
        (lambda: dcp.save({"x": {"y": 1}, "x.y": 2}, checkpoint_id=folder), CheckpointError, "duplicated flatten key x.y"),
        (lambda: dcp.save({"x": Broken()}, checkpoint_id=folder), CheckpointError, "rank 0: .*'x', a Broken, failed: KeyError"),
        (lambda: dcp.save({}, storage_writer=keep), CheckpointError, "overwrite=False"),
        (lambda: dcp.save({"x": [lambda: 1]}, checkpoint_id=folder), CheckpointError, r"cannot save obj\[0\]"),
        (lambda: dcp.save({}), RuntimeError, "`checkpoint_id` must be specified"),
        (lambda: dcp.load({"table": 3}, checkpoint_id=folder), CheckpointError, "expected BytesStorageMetadata .*int"),
        (lambda: dcp.load(state(0.0), checkpoint_id=folder / "no"), CheckpointError, "there is no checkpoint .*no: no such"),
        (lambda: dcp.load(state(0.0), checkpoint_id=theirs), CheckpointError, "it was made by a Checkpointer: load it by"),
    ]  # fmt: skip
    for mistake, kind, text in mistakes:

        def program(mistake=mistake, kind=kind, text=text):
            with pytest.raises(kind, match=text):
                mistake()

        ranks(2, program)
    assert ranks(2, lambda: loaded(folder)) == [[2.0] * 4] * 2


def test_state_dicts_are_named_by_parameter_and_take_options():
    def built(wrap: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.ModuleDict({"body": wrap(perceptron())})
        return model, adamw([{"params": model.parameters(), "lr": torch.tensor(0.1)}])

    def stepped(model: Any, optimizer: torch.optim.Optimizer) -> None:
        model["body"](torch.ones(1, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def program():
        names = ["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]
        full = sd.StateDictOptions(full_state_dict=True)
        results = []
        for wrap in (DDP, fully_shard):
            model, optimizer = built(wrap)
            fresh = sd.get_optimizer_state_dict(model, optimizer)
            assert fresh["param_groups"][0]["params"] == names == list(fresh["state"])
            stepped(model, optimizer)
            unasked = built(wrap)  # whose state was not asked for before its first step
            stepped(*unasked)
            same = sd.get_model_state_dict(unasked[0], options=full)
            state, optim = sd.get_state_dict(model, [optimizer], options=full)
            assert all(torch.equal(state[name], same[name]) for name in names)
            assert list(state) == names and not any(isinstance(v, DTensor) for v in state.values())
            results.append([state[names[0]].tolist(), optim["state"][names[0]]["exp_avg"].tolist()])
            cpu = sd.StateDictOptions(full_state_dict=True, cpu_offload=True)
            first = sd.get_state_dict(model, optimizer, options=cpu)
            assert bool(first[0]) == bool(first[1]) == (dist.get_rank() == 0)
            flat = sd.StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
            flattened = sd.get_optimizer_state_dict(model, optimizer, options=flat)
            assert "state.body.0.bias.exp_avg" in flattened and "param_groups.body.0.bias.lr" in flattened
            for optim_state, options in (
                (flattened, flat),
                (first[1], sd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)),
            ):
                other, update = built(fully_shard)
                stepped(other, update)
                given = first[0] if options.broadcast_from_rank0 else state
                both = {"model_state_dict": given, "optim_state_dict": optim_state}
                sd.set_state_dict(other, update, **both, options=options)
                stepped(other, update)
                results.append(sd.get_model_state_dict(other, options=full)[names[0]].tolist())
            for parameter in [*model.parameters()][:2]:
                parameter.requires_grad_(False)
            options = sd.StateDictOptions(ignore_frozen_params=True)
            rest = sd.get_model_state_dict(model, options=options)
            assert list(rest) == names[2:]
            sd.set_model_state_dict(model, rest, options=options)
            with pytest.raises(KeyError, match=r"no parameter 'body.0.bias' in its param_groups"):
                sd.set_optimizer_state_dict(model, optimizer, {"state": {}, "param_groups": []})
        return results

    found = ranks(2, program)
    assert found[0] == found[1] and found[0][:3] == found[0][3:]
    assert found[0][1] == found[0][2]
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        sd.StateDictOptions(broadcast_from_rank0=True)


def test_a_checkpoint_becomes_a_file_of_torch_save_and_the_other_way_round(folder: Path):
    dcp_to_torch_save(folder, folder.parent / "a.pt")
    whole = torch.load(folder.parent / "a.pt")
    assert whole["table"].equal(whole["notes"]["few"][2]["rows"]) and whole["notes"]["seen"] == [2.0]
    torch_save_to_dcp(folder.parent / "a.pt", folder.parent / "c")
    assert ranks(2, lambda: loaded(folder.parent / "c")) == [[2.0] * 4] * 2
    described: dict[str, Any] = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    assert set(described) == {"table", "notes.seen", "notes.few.0", "notes.few.1", "notes.few.2.rows"}
    assert described["table"].size == (5, 2) and described["table"].properties.dtype == torch.float32


def test_older_names_save_and_load(tmp_path: Path):
    with pytest.warns(FutureWarning, match="Please use `save`"):
        dcp.save_state_dict({"a": torch.ones(2)}, dcp.FileSystemWriter(tmp_path / "c"), no_dist=True)
    state = {"a": torch.zeros(2)}
    with pytest.warns(FutureWarning, match="Please use `load`"):
        dcp.load_state_dict(state, dcp.FileSystemReader(tmp_path / "c"), no_dist=True)
    assert state["a"].tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:torch.compile has no effect")
def test_state_dicts_are_those_of_compiled_modules_and_of_parts_and_miss_nothing():
    def built() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = perceptron()
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = built()
    names = list(model.state_dict())
    compiled = torch.compile(model)
    model[0] = torch.compile(model[0])  # type: ignore[index]
    state = sd.get_model_state_dict(compiled)
    assert list(state) == names
    halves = {name: value / 2 for name, value in state.items()}
    assert not any(sd.set_model_state_dict(compiled, halves))
    assert all(torch.equal(value, halves[name]) for name, value in sd.get_model_state_dict(compiled).items())
    assert list(sd.get_model_state_dict(model, submodules={model[2]})) == names[2:]  # type: ignore[index]
    short = sd.StateDictOptions(keep_submodule_prefixes=False)
    assert list(sd.get_model_state_dict(model, submodules={model[2]}, options=short)) == ["weight", "bias"]  # type: ignore[index]

    model(torch.ones(1, 6)).sum().backward()
    assert (
        sd.get_optimizer_state_dict(compiled, optimizer)["state"] == {}
    )  # the gradients stay for the first step
    optimizer.step()
    optim = sd.get_optimizer_state_dict(compiled, optimizer)
    assert list(optim["state"]) == names
    del optim["state"][names[1]]
    with pytest.raises(RuntimeError, match=f"Missing optimizer state for parameter '{names[1]}'"):
        sd.set_optimizer_state_dict(*built(), optim)
    sd.set_optimizer_state_dict(*built(), optim, options=sd.StateDictOptions(strict=False))
