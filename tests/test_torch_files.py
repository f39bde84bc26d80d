"""Files in PyTorch's form: every value comes back as it was, and nothing in a file runs unless the caller says so."""

import copy
import dataclasses
import enum
import functools
import io
import pathlib
import pickle
import warnings
from argparse import Namespace
from collections import Counter, OrderedDict
from types import SimpleNamespace

import pytest

import ddpgrad as torch
from ddpgrad.core.errors import CheckpointError
from ddpgrad.files import archive
from ddpgrad.files.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)
        self.itself = [self]


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float
    color: Color
    made: int = dataclasses.field(default=0, init=False)

    class Inner:
        def __eq__(self, other):
            return vars(self) == vars(other)


class Named(torch.Tensor):
    pass


class Slotted:
    __slots__ = ("x", "y")


class Wrapper(torch.Tensor):
    __slots__ = ("inner",)


class Told(torch.Tensor):
    def __getstate__(self):
        return "told", dict(vars(self))

    def __setstate__(self, state):
        self.how, attributes = state
        vars(self).update(attributes)


def test_what_overlaps_stays_shared_and_nothing_else_is_written(tmp_path):
    table = torch.arange(10000.0)
    obj = {
        "row": table[10:20].reshape(2, 5),
        "column": table[10:20:5],
        "bits": table[12:14].view(torch.int32),
    }
    torch.save(obj, tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 3000
    loaded = torch.load(tmp_path / "x.pt")
    assert loaded["column"].stride() == (5,) and loaded["bits"].dtype is torch.int32
    loaded["row"].fill_(0)
    assert loaded["column"].tolist() == [0, 0] == loaded["bits"].tolist()


def test_an_object_that_contains_itself_comes_back(tmp_path):
    loop: dict = {"list": [1]}
    loop["list"].append(loop)
    torch.save(loop, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt")
    assert loaded["list"][1] is loaded
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(CheckpointError, match="nested too deeply"):
        torch.save(nested, tmp_path / "y.pt")
    assert not (tmp_path / "y.pt").exists()


def test_files_of_checkpoints_are_read_as_well(tmp_path):
    state = torch.nn.Linear(2, 2).state_dict()
    torch.save(state, tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors").rename(tmp_path / "x.pt")  # the form, and not the name, tells
    assert torch.load(tmp_path / "x.pt")["weight"].tolist() == state["weight"].tolist()


def test_a_whole_model_is_saved_and_loaded_only_where_the_caller_trusts_it(tmp_path):
    path = tmp_path / "net.pt"
    net = Net()
    torch.save({"net": net, "epoch": 3}, path)
    for refused in (CheckpointError, pickle.UnpicklingError):
        with pytest.raises(refused, match=r"Net.*add_safe_globals\(\[.*Net\]\).*weights_only=False"):
            torch.load(path)
    loaded = torch.load(path, weights_only=False)["net"]
    assert loaded.itself[0] is loaded
    assert loaded.layer.weight.tolist() == net.layer.weight.tolist()
    assert isinstance(loaded.layer.weight, torch.nn.Parameter)


def test_classes_are_declared_safe_and_forgotten(tmp_path):
    path = tmp_path / "x.pt"
    obj = [Settings(0.5, Color.RED), Settings.Inner(), Counter("aab")]
    torch.save(obj, path)
    add_safe_globals([Settings, Color])
    try:
        assert get_safe_globals() == [Settings, Color]
        with pytest.raises(CheckpointError, match="getattr"):
            torch.load(path)
        with safe_globals([getattr, Settings.Inner]):  # a class within a class is got from that
            assert torch.load(path) == obj
        with pytest.raises(CheckpointError, match="getattr"):
            torch.load(path)
        with safe_globals([(dict, f"{__name__}.Settings")]), pytest.raises(CheckpointError):
            torch.load(path)
    finally:
        clear_safe_globals()
    assert get_safe_globals() == []
    with pytest.raises(CheckpointError, match="Settings"):
        torch.load(path)


def test_some_modules_are_never_safe():
    file = io.BytesIO()
    archive.write(file, [("data.pkl", b"\x80\x02cposix\ngetpid\n)R.")])
    file.seek(0)
    with safe_globals([__import__("os").getpid]), pytest.raises(CheckpointError, match=r"posix\.getpid"):
        torch.load(file)


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ({"f": [lambda: 0]}, r"obj\['f'\]\[0\]: .*lambda"),
        ({"file": io.TextIOWrapper(io.BytesIO())}, r"obj\['file'\]: cannot pickle"),
    ],
)
def test_what_cannot_be_saved_is_named_and_the_file_left_alone(tmp_path, obj, words):
    path = tmp_path / "x.pt"
    torch.save("before", path)
    with pytest.raises(CheckpointError, match=words):
        torch.save(obj, path)
    assert torch.load(path) == "before"


def test_objects_keep_their_parts_when_the_caller_trusts_the_file(tmp_path):
    obj = [
        functools.partial(max, 3),
        slice(1, 2),
        Namespace(a=1),
        OrderedDict(x=pathlib.Path("a")),
        torch.nn.Linear,
    ]
    torch.save(obj, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", weights_only=False)
    assert loaded[0](5) == 5 and loaded[1:] == obj[1:]


def test_a_pickle_of_another_program_is_named(tmp_path):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CheckpointError, match=r"no file of torch\.save"):
        torch.load(tmp_path / "x.pkl")


def test_more_than_4_gib_of_directory_offsets_are_understood(monkeypatch):
    """The extra fields of large archives, made of a small one."""
    monkeypatch.setattr(archive, "_BIG", 100)
    file = io.BytesIO()
    archive.write(file, [("data.pkl", b"]."), ("data/0", bytes(300))])
    file.seek(0)
    zipped = archive.Archive(file, "x", to_end=True)
    assert zipped.size("data/0") == 300 and zipped.read("data.pkl").tobytes() == b"]."


# -- the form without pickle -----------------------------------------------------------------


def test_namespaces_and_paths_are_plain_data(tmp_path):
    obj = {
        "args": Namespace(lr=0.1, out=pathlib.Path("a/b")),
        "more": SimpleNamespace(weight=torch.ones(2), s={1, 2}),
    }
    torch.save(obj, tmp_path / "x.safetensors")
    loaded = torch.load(tmp_path / "x.safetensors")
    assert loaded["args"] == obj["args"] and loaded["more"].s == {1, 2}
    assert loaded["more"].weight.tolist() == [1, 1]


def test_dataclasses_and_enums_come_back_where_they_are_allowed(tmp_path):
    path = tmp_path / "x.safetensors"
    torch.save({"settings": Settings(0.5, Color.RED)}, path)
    with pytest.raises(
        CheckpointError, match=r"Settings, and files import nothing.*add_safe_globals\(\[Settings\]\)"
    ):
        torch.load(path)
    with safe_globals([Settings]), pytest.raises(CheckpointError, match="Color"):
        torch.load(path)
    with safe_globals([Settings, Color]):
        assert torch.load(path) == {"settings": Settings(0.5, Color.RED)}
    with (
        safe_globals([(int, f"{__name__}.Settings"), Color]),
        pytest.raises(CheckpointError, match="describe"),
    ):
        torch.load(path)


def test_saving_warns_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(
            torch.nn.Linear(2, 2).state_dict(), tmp_path / "x.pt", _use_new_zipfile_serialization=False
        )
        torch.load(tmp_path / "x.pt", map_location="cpu", mmap=True)


def test_a_place_gets_the_memory_of_its_tensor_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("ddpgrad.files.settings._packages", [])
    torch.save({"a": torch.ones(2), "b": torch.arange(6.0)}, tmp_path / "x.pt")
    sizes = []

    def asked(storage, place):
        sizes.append(storage.nbytes())
        return storage

    torch.load(tmp_path / "x.pt", mmap=True, map_location=asked)
    torch.serialization.register_package(0, lambda storage: None, asked)
    for mapped in (False, True):
        assert torch.load(tmp_path / "x.pt", mmap=mapped)["b"].tolist() == [0, 1, 2, 3, 4, 5]
    assert sizes == [8, 24] * 3


@pytest.mark.parametrize("weights_only", [True, False])
def test_tensors_of_the_users_classes_come_back_with_what_lies_on_them(weights_only):
    base = torch.arange(4.0)
    wrapper = torch.ones(2, device="meta").as_subclass(Wrapper)
    wrapper.inner = base
    told = torch.ones(1).as_subclass(Told)
    told.note = "it"
    parameter = torch.nn.Parameter(torch.ones(2).as_subclass(Named))
    slotted = Slotted()
    slotted.x = 3
    file = io.BytesIO()
    torch.save([base, base[1:3].as_subclass(Named), wrapper, told, parameter, slotted], file)

    def load():
        file.seek(0)
        return torch.load(file, weights_only=weights_only)

    if weights_only:
        with pytest.raises(pickle.UnpicklingError, match="Named"):
            load()
    with safe_globals([Named, Wrapper, Told, Slotted]):
        base, part, wrapper, told, parameter, slotted = load()
    base.fill_(7)
    assert type(part) is Named and part.tolist() == [7.0, 7.0]  # still the same memory
    assert type(wrapper) is Wrapper and wrapper.is_meta and wrapper.inner.data_ptr() == base.data_ptr()
    assert type(told) is Told and (told.how, told.note) == ("told", "it")
    assert type(parameter) is Named and isinstance(parameter, torch.nn.Parameter) and parameter.requires_grad
    assert slotted.x == 3 and not hasattr(slotted, "y")


def test_constants_layouts_and_what_has_no_shape_yet_go_through_a_file():
    lazy = torch.nn.LazyLinear(2)
    file = io.BytesIO()
    torch.save([..., NotImplemented, torch.strided, lazy], file)
    file.seek(0)
    *constants, loaded = torch.load(file, weights_only=False)
    assert constants == [..., NotImplemented, torch.strided]
    assert isinstance(loaded.weight, torch.nn.UninitializedParameter) and loaded(torch.ones(1, 3)).shape == (
        1,
        2,
    )
    assert type(copy.copy(lazy.weight)) is torch.nn.UninitializedParameter


def test_what_load_does_not_know_is_refused(tmp_path):
    torch.save([1], tmp_path / "x.pt")
    with pytest.raises(TypeError, match="weight_only"):
        torch.load(tmp_path / "x.pt", weight_only=True)
    with pytest.raises(RuntimeError, match="pickle_module"):
        torch.load(tmp_path / "x.pt", pickle_module=pickle, weights_only=True)
    assert torch.load(tmp_path / "x.pt", pickle_module=pickle) == [1]
