"""The memory under tensors: shared with them, in bytes and in elements, and mapped from files."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest

import ddpgrad as torch


def test_a_storage_is_the_memory_of_a_tensor_and_its_views():
    t = torch.arange(12.0).reshape(3, 4)
    raw, typed = t[1:].untyped_storage(), t.T.storage()
    assert raw == t.untyped_storage() == typed.untyped() and raw.data_ptr() == t.data_ptr()
    assert (len(raw), len(typed), typed.element_size(), typed.dtype) == (48, 12, 4, torch.float32)
    typed[5] = 70
    assert t[1, 1] == 70 and typed[5] == 70 and typed.tolist()[4:7] == [4, 70, 6]
    raw[0:4] = torch.tensor([9.0]).untyped_storage()
    assert t[0, 0] == 9 and torch.is_storage(raw) and torch.is_storage(typed)
    assert torch.empty(0).set_(typed, 2, (2, 2), (4, 1)).tolist() == [[2, 3], [6, 7]]
    copied = typed.clone().fill_(1)
    assert t[0, 0] == 9 and sum(copied) == 12
    typed.copy_(copied)
    assert t.sum() == 12
    assert torch.UntypedStorage([1, 2]).tolist() == [1, 2] and len(torch.UntypedStorage(3)) == 3
    assert list(torch.TypedStorage([1, 2], dtype=torch.int64)) == [1, 2]


def test_what_a_storage_cannot_do_is_refused():
    assert isinstance(torch.ones(2).untyped_storage(), torch.StorageBase)
    assert not isinstance(torch.ones(2), torch.StorageBase)
    storage = torch.ones(3).untyped_storage()
    with pytest.raises(IndexError):
        storage[12]
    with pytest.raises(RuntimeError, match="steps of 1"):
        storage[::2]
    with pytest.raises(RuntimeError, match="12 bytes cannot take 4"):
        storage.copy_(torch.ones(1).untyped_storage())
    with pytest.raises(NotImplementedError, match="cannot be made one of 24"):
        storage.resize_(24)


def test_a_storage_is_a_copy_of_a_buffer():
    data = bytearray(b"\x01\x00\x02\x00\x03")
    storage = torch.ByteStorage.from_buffer(data)
    data[0] = 9
    tensor = torch.ByteTensor(storage)  # as programs gather pickles
    storage[1] = 7
    assert tensor.tolist() == [1, 7, 2, 0, 3]
    with pytest.raises(RuntimeError, match="Expected a Storage of type int32"):
        torch.IntTensor(storage)
    assert torch.ShortStorage.from_buffer(data, "big", count=1, offset=2).tolist() == [512]
    assert torch.UntypedStorage.from_buffer(data, "little", 2, dtype=torch.int16).tolist() == [9, 0, 2, 0]
    assert torch.BFloat16Storage.from_buffer(b"\x80\x3f", "little").tolist() == [1.0]
    with pytest.raises(ValueError, match="invalid byte_order None"):
        torch.ShortStorage.from_buffer(data)
    with pytest.raises(ValueError, match="multiple of element size"):
        torch.ShortStorage.from_buffer(data, "native")


def test_files_are_mapped(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(16)))
    private = torch.UntypedStorage.from_file(path, False, 12)
    part = torch.asarray(private[4:12], dtype=torch.uint8)
    part[0] = 99
    assert private[4] == 99 and path.read_bytes()[4] == 4  # written to memory, not to the file
    shared = torch.UntypedStorage.from_file(path, True, 20)
    shared[0] = 200
    del shared
    assert path.read_bytes() == bytes([200, *range(1, 16), 0, 0, 0, 0])
    with pytest.raises(ValueError, match="has 20 bytes, expected 21"):
        torch.UntypedStorage.from_file(path, False, 21)


def test_the_library_of_safetensors_loads_and_saves(tmp_path):
    pytest.importorskip("safetensors")
    code = """
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
given = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "c": torch.tensor(3)}
save_file(given, "x.safetensors")
found = load_file("x.safetensors")
assert found.keys() == given.keys() and all(torch.equal(found[k], given[k]) for k in given), found
with safe_open("x.safetensors", "pt") as file:
    assert torch.equal(file.get_slice("a")[:, 1:2], given["a"][:, 1:2])
"""
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "-m", "ddpgrad.launcher", "--as-torch", "-n", "1", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_storage_is_read_as_its_own_dtype_only():
    whole, floats = torch.arange(3), torch.arange(3.0)
    for take in (
        lambda: torch.empty(0).set_(whole.storage()),
        lambda: torch.empty(0).set_(whole.storage(), 0, (2,), (1,)),
        lambda: torch.tensor(floats.storage(), dtype=torch.int64),
        lambda: floats.new(whole.storage()),
    ):
        with pytest.raises(RuntimeError, match="Expected a Storage of type"):
            take()
    assert torch.tensor(floats.untyped_storage(), dtype=torch.float32).tolist() == [0, 1, 2]
    assert floats.new(floats.storage()).data_ptr() == floats.data_ptr()


def test_copies_of_tensors_and_their_storages_share_memory():
    x = torch.arange(4.0)
    for pair in ([x, x.untyped_storage()], [x.untyped_storage(), x], [x.storage(), x[1:]]):
        first, second = copy.deepcopy(pair)
        views = [c.untyped_storage() if isinstance(c, torch.Tensor) else c.untyped() for c in (first, second)]
        assert views[0] == views[1] != x.untyped_storage() and hash(views[0]) == hash(views[1])


def test_sizes_of_memory(tmp_path: Path):
    x = torch.ones(100)
    for storage in (x.storage(), x.untyped_storage()):
        assert 400 <= sys.getsizeof(storage) < 600  # with the memory, as programs ask for it
    assert (torch.empty(0).data_ptr(), x[:0].data_ptr()) == (0, 0)
    assert x.new(size=(2, 3)).shape == (2, 3)
    one, same = (torch.FloatStorage.from_file(str(tmp_path / "file"), True, 3) for _ in range(2))
    one.fill_(2.0)
    assert same.tolist() == [2.0, 2.0, 2.0] and same.nbytes() == 12
