"""save and load: every value comes back as it was, and a damaged file is never believed."""

import io
import json
import os
import resource
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

import ddpgrad
from ddpgrad import safetensors
from ddpgrad.errors import CheckpointError
from ddpgrad.serialization import load, save

DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", ml_dtypes.bfloat16]


def round_trip(obj):
    file = io.BytesIO()
    save(obj, file)
    file.seek(0)
    return load(file)


def same(a, b) -> bool:
    """Equal in value, type, dtype, shape and order, with NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ddpgrad.Tensor):
        return a.requires_grad == b.requires_grad and same(a.detach().numpy(), b.detach().numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        return a == b
    return str(a) == str(b)  # tells -0.0 from 0.0, and NaN equals itself


arrays = st.one_of(
    *(
        np_st.arrays(np.uint8, np_st.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)).map(
            lambda array, dtype=dtype: array.astype(dtype)
        )
        for dtype in DTYPES
    )
)
tensors = np_st.arrays(np.float32, np_st.array_shapes(min_dims=0, min_side=0, max_side=4)).map(
    ddpgrad.from_numpy
)
keys = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.floats(), st.tuples(st.integers(), st.text())
)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        arrays,
        tensors,
        arrays.map(lambda a: a.T),
        st.binary(),
        st.complex_numbers(),
        st.sets(st.text()),
        st.frozensets(st.integers()),
        st.sampled_from([ddpgrad.float16, ddpgrad.bool, ddpgrad.device("cpu"), ddpgrad.device("cuda:1")]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4).map(OrderedDict),
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(values)
@example([ddpgrad.float16, ddpgrad.bfloat16])
def test_every_value_comes_back_as_it_was(obj):
    assert same(round_trip(obj), obj)


def test_scalars_shapes_and_gradient_flags(tmp_path):
    weight = ddpgrad.tensor([1.0, 2.0], requires_grad=True)
    obj = {"scalar": np.float64(1.5), "shape": weight.shape, "weight": weight, "huge": 10**50}
    path = tmp_path / "file.safetensors"
    save(obj, path)
    assert same(load(str(path)), obj)


def test_what_is_shared_stays_shared():
    table = ddpgrad.tensor([[1.0, 2.0]])
    tied = {"embedding": table, "head": table.detach(), "other": ddpgrad.tensor([[1.0, 2.0]])}
    file = io.BytesIO()
    save(tied, file)
    file.seek(0)
    loaded = load(file)
    assert loaded["embedding"].data_ptr() == loaded["head"].data_ptr() != loaded["other"].data_ptr()


def test_one_file_object_takes_several_objects():
    file = io.BytesIO()
    for number in (1, 2):
        save({"number": number, "array": np.arange(number)}, file)
    file.seek(0)
    assert [load(file)["number"] for _ in range(2)] == [1, 2]


def test_other_programs_can_read_the_arrays(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "file.safetensors"
    save([np.arange(6, dtype=np.int16).reshape(2, 3), np.ones(3, ml_dtypes.bfloat16), np.float64(3)], path)
    read = list(safetensors.load_file(path).values())
    assert sorted(str(array.dtype) for array in read) == ["bfloat16", "float64", "int16"]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("obj", "place"),
    [
        ({"optimizer": [1, Opaque()]}, r"obj\['optimizer'\]\[1\]: .*Opaque"),
        ({"a": {"b": slice(1, 2)}}, r"obj\['a'\]\['b'\]: .*slice"),
        ({"f": len}, r"obj\['f'\]"),
        ({"words": np.array(["a"])}, r"obj\['words'\]: .*<U1"),
        ({b"key": 1}, r"its key b'key' is a bytes"),
        ({"n": 10**5000}, "4300 digits"),
    ],
)
def test_what_cannot_be_stored_is_named_and_the_file_left_alone(tmp_path, obj, place):
    path = tmp_path / "file.safetensors"
    save("before", path)
    with pytest.raises(CheckpointError, match=place):
        save(obj, path)
    assert load(path) == "before"


@pytest.fixture(params=["a.pt", "a.safetensors"])
def file(request, tmp_path):
    """A file that there is already, on a file system where another can take its place."""
    path = tmp_path / request.param
    save(ddpgrad.ones(3), path)
    try:
        os.close(os.open(tmp_path, getattr(os, "O_TMPFILE", 0) | os.O_WRONLY))
    except OSError:
        pytest.skip("no files without names here")
    return path


def test_a_full_disk_costs_no_earlier_file(file):
    before, most = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    large = ddpgrad.ones(100_000)  # here, as a kernel that is compiled for it is written to its cache
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most[1]))
    try:
        with pytest.raises(OSError, match="the file that was there before is as it was") as caught:
            save(large, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert caught.value.filename == str(file)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def test_a_file_that_is_replaced_stays_whole_for_who_has_it_open(file):
    os.chmod(file, 0o640)
    link = file.with_name(f"link-{file.name}")
    link.symlink_to(file.name)
    with open(file, "rb") as earlier:
        save(ddpgrad.ones(4), link)
        assert load(earlier).shape == (3,)
    assert load(file).shape == (4,) and link.is_symlink() and file.stat().st_mode & 0o777 == 0o640


def test_an_object_that_contains_itself_is_refused(tmp_path):
    loop: list = [1]
    loop.append({"again": loop})
    with pytest.raises(CheckpointError, match=r"obj\[1\]\['again'\]: it contains itself"):
        save(loop, tmp_path / "file.safetensors")


def test_a_foreign_file_is_refused(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "foreign.safetensors"
    safetensors.save_file({"a": np.zeros(2)}, path)
    with pytest.raises(CheckpointError, match=r"was not written by ddpgrad\.save"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")


def test_map_location_decides_the_device():
    file = io.BytesIO()
    save(ddpgrad.tensor([1.0]), file)
    for target in ("cpu", ddpgrad.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage.cpu()):
        file.seek(0)
        assert str(load(file, map_location=target).device) == "cpu"
    for target in ("tpu", {"cpu": "tpu"}):
        file.seek(0)
        with pytest.raises(ddpgrad.errors.DeviceError):
            load(file, map_location=target)


# -- plain safetensors files ---------------------------------------------------------------


def state() -> dict[str, ddpgrad.Tensor]:
    return {
        "wte.weight": ddpgrad.arange(12.0).reshape(3, 4),
        "half": ddpgrad.ones(3, dtype=ddpgrad.bfloat16),
        "transposed": ddpgrad.arange(6).reshape(2, 3).T,
        "none": ddpgrad.empty(0, 2),
        "step": ddpgrad.tensor(7),
    }


def equal(a: dict[str, ddpgrad.Tensor], b: dict[str, ddpgrad.Tensor]) -> bool:
    return a.keys() == b.keys() and all(same(a[k].contiguous(), b[k].contiguous()) for k in a)


def test_safetensors_files_are_read_and_written_as_others_do(tmp_path):
    others = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "a.safetensors"
    safetensors.save_file(state(), path, {"note": "x"})
    read = others.load_file(path)
    assert equal({name: ddpgrad.from_numpy(array) for name, array in read.items()}, state())
    # The order of names differs from that of the bytes, and the file is mapped: it stays as it is.
    others.save_file({name: np.array(t.numpy(), order="C") for name, t in state().items()}, path)
    before = path.read_bytes()
    loaded = safetensors.load_file(path)
    assert equal(loaded, state())
    loaded["wte.weight"].add_(1)
    assert path.read_bytes() == before
    with (
        safetensors.safe_open(path, framework="pt") as file,
        pytest.raises(CheckpointError, match=r"wte\.weight"),
    ):
        file.get_tensor("absent")


def test_sharded_models_come_back_whole_and_replace_one_another(tmp_path):
    for size in (20, 10**6, 60):
        safetensors.save_model(state(), tmp_path, size)
        assert equal(safetensors.load_model(tmp_path), state())
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert shards == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (tmp_path / shards[0]).unlink()
    with pytest.raises(CheckpointError, match="00001-of-00002"):
        safetensors.load_model(tmp_path)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", 3, "x/y.safetensors"])
def test_an_index_never_leads_out_of_its_folder(tmp_path, shard):
    index = {"weight_map": {"a": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="no file name"):
        safetensors.load_model(tmp_path)


def header(entries: dict) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(start: int, stop: int, shape: list, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\xff" * 16, "header claims"),
        (header({"a": entry(0, 8, [2])}) + bytes(4), "truncated"),
        (header({"a": entry(0, 8, [2])}) + bytes(9), "follow its end"),
        (header({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}) + bytes(12), "does not follow"),
        (header({"a": entry(4, 12, [2])}) + bytes(12), "does not follow"),
        (header({"a": entry(0, 8, [-2])}) + bytes(8), "malformed"),
        (header({"a": entry(0, 8, [8], "F8_E4M3")}) + bytes(8), "F8_E4M3"),
        (header({"a": entry(0, 8, [1 << 40, 1 << 40])}) + bytes(8), "does not follow"),
    ],
)
def test_damaged_safetensors_files_are_refused(tmp_path, data, reason):
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=reason):
        safetensors.load_file(path)
