"""Folders of `torch.distributed.checkpoint`: what PyTorch wrote is read here, and what is written here PyTorch reads."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp

import ddpgrad
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad.distributed.tensor import Shard, distribute_tensor

pytestmark = pytest.mark.filterwarnings("ignore")


def state(lib: Any, value: float) -> dict[str, Any]:
    tensors = {
        str(kind): lib.full((2, 3), value).to(getattr(lib, kind))
        for kind in ("float32", "bfloat16", "int64", "bool")
    }
    odd = {
        "turned": (lib.arange(6.0) + value).reshape(2, 3).t(),
        "part": (lib.arange(9.0) + value)[2:5],
        "none": lib.empty(0, 3),
    }
    steps = {
        "state": {"w": {"step": lib.tensor(value), "avg": lib.full((3,), value)}},
        "groups": [{"lr": value, "on": ["w"]}],
    }
    data = {
        "n": int(value),
        "text": str(value),
        "pair": (value, None),
        "od": OrderedDict(a=value),
        "size": lib.Size([1, 2]),
    }
    return {**tensors, **odd, "optim": steps, **data, "scalar": lib.tensor(value)}


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_a_folder_of_either_is_the_others(tmp_path: Path):
    described = []
    for saves, lib in ((torch_dcp, torch), (dcp, ddpgrad)):
        folder = tmp_path / saves.__name__
        saves.save(state(lib, 1.0), checkpoint_id=folder, no_dist=True)
        for loads, other in ((torch_dcp, torch), (dcp, ddpgrad)):
            into = state(other, 0.0)
            loads.load(into, checkpoint_id=folder, no_dist=True)
            assert plain(into) == plain(state(other, 1.0))
            found = loads.FileSystemReader(folder).read_metadata()
            places = sorted((str(index), place.relative_path) for index, place in found.storage_data.items())
            described.append((str(found.state_dict_metadata), found.planner_data, places, found.version))
    assert len(described) == 4 and all(one == described[0] for one in described)


def test_parts_of_ranks_are_the_others_tensors(tmp_path: Path):
    whole = {"row": ddpgrad.arange(15.0).reshape(5, 3), "col": ddpgrad.arange(12.0).reshape(3, 4)}

    def divided() -> dict[str, Any]:
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        return {
            key: distribute_tensor(whole[key], mesh, [Shard(dim)]) for key, dim in (("row", 0), ("col", 1))
        }

    dist.simulate(lambda: dcp.save(divided(), checkpoint_id=tmp_path / "a"), 4)
    into = {"row": torch.zeros(5, 3), "col": torch.zeros(3, 4)}
    torch_dcp.load(into, checkpoint_id=tmp_path / "a", no_dist=True)
    assert all(into[key].tolist() == whole[key].tolist() for key in whole)
    torch_dcp.save(
        {key: value * 2 for key, value in into.items()}, checkpoint_id=tmp_path / "b", no_dist=True
    )

    def loaded() -> list[Any]:
        into = divided()
        dcp.load(into, checkpoint_id=tmp_path / "b")
        return [value.full_tensor().tolist() for value in into.values()]

    assert dist.simulate(loaded, 3) == [[(value * 2).tolist() for value in whole.values()]] * 3


def test_what_pytorch_wrote_is_checked_too(tmp_path: Path):
    torch_dcp.save({"w": torch.ones(100)}, checkpoint_id=tmp_path, no_dist=True)
    file = tmp_path / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[content.index(torch.ones(100).numpy().tobytes())] ^= 1
    file.write_bytes(content)
    with pytest.raises(dcp.CheckpointException, match="damaged"):
        dcp.load({"w": ddpgrad.zeros(100)}, checkpoint_id=tmp_path, no_dist=True)
