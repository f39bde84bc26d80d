"""The same files in both programs: what PyTorch wrote is read here, and what is written here PyTorch reads."""

import io
import pickle
import subprocess
import sys
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

import ddpgrad
from ddpgrad.errors import CheckpointError

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


class Opaque:
    pass


def values(lib, dtypes=tuple(DTYPES)) -> dict:
    """One of all plain data, made of the tensors of `lib`; the views share memory."""
    base = lib.arange(12.0)
    generator = lib.nn.Parameter(lib.ones(2, 3), requires_grad=False)
    plain = [
        None,
        True,
        -1,
        300,
        70000,
        -(2**40),
        2**70,
        1.5,
        "x\ud800",
        b"\0\xff",
        bytearray(b"a"),
        1j,
        (),
        (1,),
        {2},
    ]
    ordered = OrderedDict(a=plain, b=Counter("aab"))
    return {
        "base": base,
        "part": base[4:10].reshape(2, 3).T,
        "expanded": lib.ones(1).expand(4),
        "scalar": lib.tensor(2.5),
        "none": lib.zeros(0, 3),
        "leaf": lib.ones(2).requires_grad_(),
        "parameters": [lib.nn.Parameter(base), generator, generator],
        "types": [getattr(lib, name) for name in dtypes],
        "tensors": [lib.ones(3).to(getattr(lib, name)) for name in dtypes],
        "shape": base.shape,
        "device": [lib.device("cpu"), lib.device("cuda:1")],
        "plain": ordered,
        (1, "key", 2.5): {None: [plain] * 2},
    }


def described(obj, lib) -> object:
    """All that `obj` is, in words that are the same in both programs."""
    if isinstance(obj, lib.Tensor):
        parts = (
            tuple(obj.shape),
            obj.stride() if obj.numel() else None,
            obj.storage_offset(),
            str(obj.dtype),
            obj.requires_grad,
        )
        is_parameter = isinstance(obj, lib.nn.Parameter)
        return "tensor", *parts, is_parameter, str(obj.detach().to(lib.complex128).tolist())
    if isinstance(obj, dict):
        pairs = [(described(key, lib), described(value, lib)) for key, value in obj.items()]
        return type(obj), pairs, getattr(obj, "_metadata", None)
    if isinstance(obj, (list, tuple)):
        return type(obj).__name__, [described(item, lib) for item in obj]
    kind = "dtype" if isinstance(obj, lib.dtype) else type(obj).__name__.lower()
    return kind, str(obj)


@pytest.mark.parametrize("zipped", [True, False])
def test_what_pytorch_writes_is_read(tmp_path, zipped):
    path = tmp_path / "values.pt"
    # PyTorch does not read the last five of its types in its old form.
    torch.save(values(torch, DTYPES if zipped else DTYPES[:12]), path, _use_new_zipfile_serialization=zipped)
    loaded = ddpgrad.load(path)
    assert described(loaded, ddpgrad) == described(torch.load(path), torch)
    loaded["base"][4] = 77
    assert float(loaded["part"][0, 0]) == 77 == loaded["parameters"][0][4].item()
    assert loaded["parameters"][1] is loaded["parameters"][2]


def test_what_is_written_here_pytorch_reads(tmp_path):
    path = tmp_path / "values.pt"
    ddpgrad.save(values(ddpgrad), path)
    loaded = torch.load(path, weights_only=True)
    expected = io.BytesIO()
    torch.save(values(torch), expected)
    expected.seek(0)
    assert described(loaded, torch) == described(torch.load(expected), torch)
    assert described(loaded, torch) == described(ddpgrad.load(path), ddpgrad)
    loaded["base"][4] = 77
    assert float(loaded["part"][0, 0]) == 77 == loaded["parameters"][0][4].item()
    assert loaded["parameters"][1] is loaded["parameters"][2]
    mapped = torch.load(path, mmap=True)
    assert torch.equal(mapped["base"], torch.arange(12.0))


def trained(lib):
    model = lib.nn.Sequential(lib.nn.BatchNorm1d(3), lib.nn.Linear(3, 4))
    optimizer = lib.optim.Adam(model.parameters())
    model(lib.randn(5, 3)).square().sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize(("writer", "reader"), [(torch, ddpgrad), (ddpgrad, torch)])
def test_training_goes_on_in_the_other_program(tmp_path, writer, reader):
    path = tmp_path / "checkpoint.pt"
    model, optimizer = trained(writer)
    writer.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    saved = reader.load(path)
    there, goes_on = trained(reader)
    there.load_state_dict(saved["model"])
    goes_on.load_state_dict(saved["optimizer"])
    assert dict(saved["model"]._metadata) == dict(model.state_dict()._metadata)
    data = [[0.5, -1.0, 2.0], [1.0, 0.0, 3.0]]
    for net, steps, lib in ((model, optimizer, writer), (there, goes_on, reader)):
        steps.zero_grad()
        net(lib.tensor(data)).square().sum().backward()
        steps.step()
    for name, value in there.state_dict().items():
        assert value.flatten().tolist() == pytest.approx(
            model.state_dict()[name].flatten().tolist(), rel=1e-4, abs=1e-5
        )


def test_a_plain_pickle_of_pytorchs_tensors_is_read(tmp_path):
    """By Python's own `pickle`, in a program whose torch is ddpgrad."""
    view = torch.arange(6.0).view(2, 3).t()
    made = {"view": view, "parameter": torch.nn.Parameter(torch.ones(2)), "half": torch.ones(2).bfloat16(),
            "state": torch.nn.Linear(2, 1).state_dict(), "sparse": torch.eye(2).to_sparse()}  # fmt: skip
    (tmp_path / "made").write_bytes(pickle.dumps(made))
    code = (
        "import pickle, sys; from ddpgrad.launcher import as_torch; as_torch.install(); import torch\n"
        "read = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print({k: (v.tolist() if k == 'view' else v['weight'].shape if k == 'state' else str(v)) for k, v in read.items()})"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "made"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    shown = {
        k: (v.tolist() if k == "view" else v["weight"].shape if k == "state" else str(v))
        for k, v in made.items()
    }
    assert run.stdout.strip() == str(shown)


def test_what_is_more_than_data_is_refused(tmp_path):
    path = tmp_path / "code.pt"
    torch.save(Opaque(), path)
    with pytest.raises(
        CheckpointError, match=r"test_files_parity\.Opaque.*add_safe_globals.*weights_only=False"
    ):
        ddpgrad.load(path)
    assert isinstance(ddpgrad.load(path, weights_only=False), Opaque)
    with ddpgrad.serialization.safe_globals([Opaque]):
        assert isinstance(ddpgrad.load(path), Opaque)
    torch.save(torch.nn.Linear(1, 1), path)
    with pytest.raises(CheckpointError, match=r"torch\.nn\.modules\.linear\.Linear"):
        ddpgrad.load(path)
    with ddpgrad.serialization.safe_globals([ddpgrad.nn.Linear, set]):
        assert isinstance(ddpgrad.load(path), ddpgrad.nn.Linear)
    hooked = torch.nn.Linear(1, 1)
    hooked.register_forward_hook(print)
    torch.save(hooked, path)
    with pytest.raises(RuntimeError, match="_forward_hooks"):
        ddpgrad.load(path, weights_only=False)
    torch.save(torch.optim.SGD([torch.ones(1)], 0.1), path)
    with pytest.raises(CheckpointError, match="state_dict"):
        ddpgrad.load(path, weights_only=False)


def _layers(stack: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    nn = stack.nn
    convolutions = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    return {
        "convolutions": (convolutions.append(nn.Linear(128, 5)), (2, 3, 8, 8)),
        "lstm": (nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
        "transformer": (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
            (5, 2, 8),
        ),
        "norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.PReLU(), nn.Dropout(0.5), nn.LayerNorm(6)), (2, 4, 6)),
    }


@pytest.mark.parametrize("name", _layers(torch))
def test_whole_models_go_both_ways(tmp_path, name):
    x = np.random.default_rng(0).standard_normal(_layers(torch)[name][1]).astype(np.float32)
    for writer, reader in ((torch, ddpgrad), (ddpgrad, torch), (ddpgrad, ddpgrad)):
        model = _layers(writer)[name][0].eval()
        writer.save(model, tmp_path / "whole.pt")
        read = reader.load(tmp_path / "whole.pt", weights_only=False)
        outs = [m(stack.from_numpy(x)) for m, stack in ((model, writer), (read, reader))]
        ours, theirs = (out[0] if isinstance(out, tuple) else out for out in outs)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert list(read.state_dict()) == list(model.state_dict()) and not read.training
        theirs.sum().backward()
        assert all(p.grad is not None for p in read.parameters())


@pytest.mark.parametrize(("writer", "reader"), [(torch, ddpgrad), (ddpgrad, torch)])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_matrices_stored_by_lines_go_both_ways(writer, reader, tmp_path):
    rows = writer.tensor([[0.0, 1, 2], [3, 0, 0]]).to_sparse_csr()
    made = [rows, rows.to_sparse_csc().half(), rows.to_sparse_bsr((1, 3)), writer.nn.Parameter(rows)]
    writer.save(made, tmp_path / "lines.pt")
    assert [repr(t) for t in reader.load(tmp_path / "lines.pt")] == [repr(t) for t in made]


def test_a_file_without_checksums_is_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, tmp_path / "plain.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert ddpgrad.load(tmp_path / "plain.pt")["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(("writer", "reader"), [(torch, ddpgrad), (ddpgrad, torch)])
def test_tensors_on_meta_go_through_a_file(writer, reader, weights_only, tmp_path):
    parameter = writer.nn.Parameter(writer.empty(2, 3, device="meta").t())
    half = writer.empty(3, dtype=writer.bfloat16, device="meta", requires_grad=True)
    writer.save({"p": parameter, "t": half, "b": writer.ones(2)}, tmp_path / "x.pt")
    loaded = reader.load(tmp_path / "x.pt", weights_only=weights_only)
    assert isinstance(loaded["p"], reader.nn.Parameter) and loaded["p"].stride() == (1, 3)
    assert (repr(loaded["t"]), loaded["b"].tolist()) == (repr(half), [1, 1])
