"""Planners, storages and stagers of a program's own, and files that others wrote, in `torch.distributed.checkpoint`."""

import dataclasses
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from replicas import on_ranks, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad.distributed.checkpoint import (
    default_planner,
    format_utils,
    hf_storage,
    planner,
    staging,
    storage,
)
from ddpgrad.distributed.checkpoint.metadata import Metadata, MetadataIndex
from ddpgrad.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from ddpgrad.distributed.tensor import Shard, distribute_tensor
from ddpgrad.errors import CheckpointError
from ddpgrad.futures import Future


def state(value: float) -> dict[str, Any]:
    return {"a": torch.arange(6.0).reshape(2, 3) + value, "b": {"c": [torch.full((2,), value)], "n": value}}


def plain(state: dict[str, Any]) -> list[Any]:
    return [state["a"].tolist(), state["b"]["c"][0].tolist(), state["b"]["n"]]


class Memory(storage.StorageWriter, storage.StorageReader):
    """A storage in a dict, which notes what it is asked, and fails where it is told to."""

    def __init__(self, fails: str = "", on: int = 0) -> None:
        self.fails, self.on = fails, on
        self.log: list[str] = []
        self.items: dict[MetadataIndex, Any] = {}
        self.metadata: Metadata | None = None

    def note(self, name: str) -> None:
        self.log.append(name)
        if name == self.fails and dist.get_rank() == self.on:
            raise ValueError(f"no {name}")

    def reset(self, checkpoint_id: Any = None) -> None:
        self.log.append(f"reset {checkpoint_id}")

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.note(f"set up {is_coordinator} {kwargs['rank']}")

    def prepare_local_plan(self, plan: Any) -> Any:
        self.note("local")
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        self.note("global")
        return plans

    def write_data(self, plan: planner.SavePlan, planner: planner.SavePlanner) -> Future[list[Any]]:
        self.note("write")
        for item in plan.items:
            data = planner.resolve_data(item)
            self.items[item.index] = data.getvalue() if isinstance(data, io.BytesIO) else data.clone()
        return self._done([storage.WriteResult(index, 1, "here") for index in self.items])

    def finish(self, metadata: Metadata, results: list[list[storage.WriteResult]]) -> None:
        self.note(f"finish {sum(map(len, results))}")
        self.metadata = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        assert self.metadata is not None
        return self.metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self.note("set up reader")

    def read_data(self, plan: planner.LoadPlan, planner: planner.LoadPlanner) -> Future[None]:
        for item in plan.items:
            data = self.items[item.storage_index]
            if isinstance(data, bytes):
                planner.load_bytes(item, io.BytesIO(data))
            else:
                planner.resolve_tensor(item).copy_(data)
        return self._done(None)

    def _done(self, value: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(value)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def test_a_storage_of_the_programs_own_is_asked_step_by_step():
    held = Memory()
    described = dcp.save(state(1.0), checkpoint_id="kv://x", storage_writer=held)
    assert held.log == ["reset kv://x", "set up True 0", "local", "global", "write", "finish 3"]
    assert list(described.state_dict_metadata) == ["a", "b.c.0", "b.n"]
    into = state(0.0)
    kept = into["a"]
    dcp.load(into, storage_reader=held)
    assert plain(into) == plain(state(1.0)) and into["a"] is kept
    assert held.log[6:] == ["set up reader", "local", "global"]


@pytest.mark.parametrize(("step", "rank"), [("local", 1), ("global", 0), ("write", 1), ("finish 4", 0)])
@on_ranks(2)
def test_what_fails_in_a_storage_on_one_rank_is_raised_on_all(step: str, rank: int):
    mine = {"own": {str(dist.get_rank()): 1}}
    with pytest.raises(dcp.CheckpointException, match=f"^rank {rank}: ValueError: no {step}$") as caught:
        dcp.save({**state(1.0), **mine, "b": {"n": 1}}, storage_writer=Memory(step, rank))
    assert {rank: type(error) for rank, (error, _) in caught.value.failures.items()} == {rank: ValueError}


def test_planners_of_the_programs_own_rename_convert_and_add(tmp_path: Path):
    class Save(dcp.DefaultSavePlanner):
        def set_up_planner(
            self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
        ) -> None:
            super().set_up_planner({f"x_{k}": v for k, v in state_dict.items()}, storage_meta, is_coordinator)

        def create_local_plan(self) -> Any:
            plan = super().create_local_plan()
            for item in plan.items:
                if item.tensor_data is not None:
                    item.tensor_data.properties.dtype = torch.float16
            return dataclasses.replace(plan, planner_data=[dist.get_rank()])

        def create_global_plan(self, all_plans: Any) -> Any:
            plans, metadata = default_planner.create_default_global_save_plan(
                default_planner.dedup_save_plans(all_plans)
            )
            metadata.planner_data = [plan.planner_data for plan in plans]
            return plans, metadata

        def transform_object(self, write_item: Any, object: Any) -> Any:
            made = super().transform_object(write_item, object)
            return made.half() if isinstance(made, torch.Tensor) else made

    class Load(dcp.DefaultLoadPlanner):
        def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
            super().set_up_planner(state_dict, metadata, is_coordinator)
            self.state_dict = {f"x_{k}": v for k, v in self.state_dict.items()}
            self.mappings = {f"x_{k}": path for k, path in self.mappings.items()}

        def resolve_tensor(self, read_item: Any) -> Any:
            self.target = super().resolve_tensor(read_item)
            return torch.empty_like(self.target)

        def commit_tensor(self, read_item: Any, tensor: Any) -> None:
            self.target.copy_(-tensor)

    def program() -> list[Any]:
        dcp.save(state(1.0), checkpoint_id=tmp_path, planner=Save())
        into = state(0.0)
        dcp.load(into, checkpoint_id=tmp_path, planner=Load())
        return plain(into)

    assert ranks(2, program) == [[(-state(1.0)["a"]).tolist(), [-1.0, -1.0], 1.0]] * 2
    described = dcp.FileSystemReader(tmp_path).read_metadata()
    assert described.planner_data == [[0], [1]] and "x_b.c.0" in described.state_dict_metadata
    assert described.state_dict_metadata["x_a"].properties.dtype == torch.float16  # type: ignore[union-attr]


def test_what_ranks_have_alike_is_written_by_the_first_where_that_is_asked(tmp_path: Path):
    def program() -> None:
        dcp.save(
            state(1.0), checkpoint_id=tmp_path, planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)
        )

    ranks(2, program)
    places = dcp.FileSystemReader(tmp_path).read_metadata().storage_data.values()
    assert {place.relative_path for place in places} == {"__0_0.distcp"}


def test_a_checkpoint_lies_beside_other_files_and_replaces_one(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    kinds: tuple[tuple[float, dict[str, Any]], ...] = (
        (1.0, {}),
        (2.0, {"single_file_per_rank": False}),
        (3.0, {"thread_count": 2}),
    )
    for value, options in kinds:
        dcp.save(state(value), storage_writer=dcp.FileSystemWriter(tmp_path, **options))
        into = {**state(0.0), 5: {6: None}}
        dcp.load(into, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
        assert plain(into) == plain(state(value))
    assert sorted(os.listdir(tmp_path)) == [".metadata", "__0_0.distcp", "__0_1.distcp", "config.json"]
    with pytest.raises(CheckpointError, match="Checkpoint already exists"):
        dcp.save(state(4.0), storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))


def test_keys_that_are_no_texts_and_tensors_without_memory_are_loaded(tmp_path: Path):
    dcp.save({"s": {0: {"lr": 1.5}}, "w": torch.ones(2)}, checkpoint_id=tmp_path)
    into: dict[str, Any] = {"s": {0: {"lr": 0.0}}, "w": torch.empty(2, device="meta")}
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["s"] == {0: {"lr": 1.5}} and into["w"].tolist() == [1.0, 1.0]


def test_parts_are_loaded_by_key_without_a_state_dict(tmp_path: Path):
    dcp.save(state(1.0), checkpoint_id=tmp_path)
    assert plain(_load_state_dict_from_keys(checkpoint_id=tmp_path)) == plain(state(1.0))
    part = _load_state_dict_from_keys("b", checkpoint_id=tmp_path)
    assert list(part) == ["b"] and part["b"]["n"] == 1.0


def test_each_rank_may_describe_what_it_writes_itself(tmp_path: Path):
    def program() -> float:
        dcp.save(
            {"x": torch.full((2,), float(dist.get_rank()))}, checkpoint_id=tmp_path, use_collectives=False
        )
        into = {"x": torch.zeros(2)}
        dcp.load(into, checkpoint_id=tmp_path)
        return into["x"][0].item()

    assert ranks(2, program) == [0.0, 1.0]
    assert sorted(os.listdir(tmp_path)) == ["__0.metadata", "__0_0.distcp", "__1.metadata", "__1_0.distcp"]


def test_stagers_copy_as_they_are_told(tmp_path: Path):
    class Stager(staging.BlockingAsyncStager):
        def stage(self, state_dict: Any) -> Any:
            return super().stage({**state_dict, "a": state_dict["a"] * 2})

    given = state(1.0)
    dcp.async_save(given, checkpoint_id=tmp_path / "a", async_stager=Stager()).result()  # type: ignore[union-attr]
    into = state(0.0)
    dcp.load(into, checkpoint_id=tmp_path / "a")
    assert into["a"].equal(given["a"] * 2)

    stager = staging.DefaultStager(staging.StagingOptions(use_non_blocking_copy=False))
    begun: Any = dcp.async_save(given, checkpoint_id=tmp_path / "b", async_stager=stager)
    assert begun.staging_completion.result() is None
    given["a"].zero_()
    begun.upload_completion.result()
    stager.close()
    dcp.load(into, checkpoint_id=tmp_path / "b")
    assert plain(into) == plain(state(1.0))

    writer = dcp.FileSystemWriter(tmp_path / "c", cache_staged_state_dict=True)
    for value in (1.0, 2.0):
        done: Any = dcp.async_save(state(value), storage_writer=writer, checkpoint_id=tmp_path / f"c{value}")
    done.result()
    for value in (1.0, 2.0):
        dcp.load(into, checkpoint_id=tmp_path / f"c{value}")
        assert plain(into) == plain(state(value))


def test_safetensors_hold_parts_and_joined_tensors(tmp_path: Path):
    numbers = {"row": 1, "col": 2, "plain": 2}
    whole = {
        "row": torch.arange(15.0).reshape(5, 3),
        "col": torch.arange(12.0).reshape(3, 4),
        "plain": torch.ones(2).bfloat16(),
    }

    def program(consolidate: bool, folder: Path) -> list[Any]:
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        given = {
            "row": distribute_tensor(whole["row"], mesh, [Shard(0)]),
            "col": distribute_tensor(whole["col"], mesh, [Shard(1)]),
            "plain": whole["plain"],
        }
        writer = dcp.HuggingFaceStorageWriter(
            str(folder), numbers, save_distributed=True, enable_consolidation=consolidate
        )
        dcp.save(given, storage_writer=writer)
        into = {key: torch.zeros_like(value) for key, value in given.items()}
        dcp.load(into, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
        return [
            all(torch.equal(into[key], given[key]) for key in ("plain",)),
            into["row"].full_tensor().tolist(),
        ]

    for consolidate in (False, True):
        folder = tmp_path / str(consolidate)
        assert ranks(2, lambda c=consolidate, f=folder: program(c, f)) == [[True, whole["row"].tolist()]] * 2
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.safetensors"))
    assert names[0] == "False/shard-00001-model-00001-of-00002.safetensors" and len(names) == 10
    index = json.loads((tmp_path / "True" / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["row"] == "model-00001-of-00002.safetensors"
    joined = torch.safetensors.load_model(tmp_path / "True")
    assert all(torch.equal(joined[key], value) for key, value in whole.items())
    parts, again = str(tmp_path / "False"), tmp_path / "again"
    again.mkdir()
    ranks(2, lambda: hf_storage.consolidate_safetensors_files_on_every_rank(parts, str(again), numbers))
    assert sorted(p.name for p in again.iterdir()) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    assert (again / "model.safetensors.index.json").read_text() == json.dumps(index, indent=2)
    joined = torch.safetensors.load_model(again)
    assert all(torch.equal(joined[key], value) for key, value in whole.items())
    with pytest.raises(CheckpointError, match="'n' is no tensor, and safetensors hold tensors only"):
        dcp.save({"n": 1}, storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path / "c")))


def test_a_file_of_torch_save_is_given_to_all_ranks(tmp_path: Path):
    torch.save({"m": {"w": torch.arange(3.0)}}, tmp_path / "a.pt")

    def program() -> list[Any]:
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        into = {"m": {"w": distribute_tensor(torch.zeros(3), mesh, [Shard(0)])}}
        reader = format_utils.BroadcastingTorchSaveReader()
        dcp.load(
            into,
            storage_reader=reader,
            planner=format_utils.DynamicMetaLoadPlanner(),
            checkpoint_id=tmp_path / "a.pt",
        )
        return into["m"]["w"].full_tensor().tolist()

    assert ranks(4, program) == [[0.0, 1.0, 2.0]] * 4  # the last has no part


class Config:
    """What no reader makes unless it is told to."""

    def __init__(self) -> None:
        self.size = 3


def test_classes_of_the_program_are_read_where_it_says_so(tmp_path: Path):
    dcp.save({"config": Config()}, checkpoint_id=tmp_path / "a")
    into: dict[str, Any] = {"config": None}
    with pytest.raises(CheckpointError, match=r"needs .*Config.*add_safe_globals"):
        dcp.load(into, checkpoint_id=tmp_path / "a")
    with torch.serialization.safe_globals([Config]):
        dcp.load(into, checkpoint_id=tmp_path / "a")
    assert into["config"].size == 3

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".metadata").write_bytes(pickle.dumps(os.system))
    with pytest.raises(CheckpointError, match=r"has posix.system, which is no part of the description"):
        dcp.load(into, checkpoint_id=tmp_path / "b")


def test_a_checkpoint_lies_in_a_store_of_fsspec(tmp_path):
    pytest.importorskip("fsspec")
    from ddpgrad.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    def loaded(**where):
        state = {"a": torch.zeros(5), "b": {"c": [0, 0]}}
        dcp.load(state, **where)
        return state["a"].tolist(), state["b"]["c"]

    def program():
        address = f"memory://{tmp_path.name}"
        for step in (1, 2):  # the second replaces the first
            dcp.save({"a": torch.arange(5.0) * step, "b": {"c": [1, step]}}, checkpoint_id=address)
            assert loaded(checkpoint_id=address) == ([0.0, step, 2 * step, 3 * step, 4 * step], [1, step])
        assert loaded(storage_reader=FsspecReader(address)) == loaded(checkpoint_id=address)
        dcp.save({"a": torch.ones(5), "b": {"c": [3, 4]}}, storage_writer=FsspecWriter(str(tmp_path / "a")))
        return loaded(checkpoint_id=tmp_path / "a")

    assert ranks(2, program) == [([1.0] * 5, [3, 4])] * 2
    with pytest.raises(RuntimeError, match="stores of fsspec"):
        dcp.save({}, checkpoint_id="nowhere://a")
