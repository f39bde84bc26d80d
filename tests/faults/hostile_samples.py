"""Hostile files and checkpoints, each made from a sound one or by hand."""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import ddpgrad
from ddpgrad.files import archive
from ddpgrad.launcher import Checkpointer


def packed(header: bytes, body: bytes = b"") -> bytes:
    """A file of the safetensors format."""
    return struct.pack("<Q", len(header)) + header + body


def entries(**tensors: tuple[int, int, list[int]]) -> bytes:
    return json.dumps(
        {
            name: {"dtype": "F32", "shape": shape, "data_offsets": [a, b]}
            for name, (a, b, shape) in tensors.items()
        }
    ).encode()


def ours(tree: str, tensors: str = "") -> bytes:
    """A file as `save` writes it, its checksum right, around any `tree`."""
    blank = "0" * 64
    inside = {"format": "ddpgrad", "version": "1", "tree": tree, "sha256": blank}
    header = f'{{"__metadata__":{json.dumps(inside)}{tensors}}}'
    digest = hashlib.sha256(header.encode()).hexdigest()
    return packed(header.replace(blank, digest, 1).encode())


# Python takes all of them for the same place of a dict.
COLLIDING = [1 + i * (2**61 - 1) for i in range(20_000)]


def files() -> dict[str, bytes]:
    million = ",".join(f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(1_000_000))
    return {
        "overlap": packed(entries(a=(0, 8, [2]), b=(4, 12, [2])), bytes(12)),
        "beyond": packed(entries(a=(0, 1 << 40, [1 << 38])), bytes(8)),
        "product-overflows": packed(entries(a=(0, 0, [1 << 62, 4, 0])) + b" ", b"x"),
        "header-of-exabytes": struct.pack("<Q", 1 << 62) + b"{}",
        "header-of-99-mb": struct.pack("<Q", 99_000_000) + b" " * 1000,
        "million-tensors": packed(f"{{{million}}}".encode()) + b"x",
        "million-tensors-sound": ours("[]", "," + million),
        "deep": packed(b"[" * 5_000_000),
        "deep-tree": ours('{"tuple":[' * 100_000 + "]}" * 100_000),
        "wide-tree": ours("[" + "[]," * 5_000_000 + "[]]"),
        "huge-number": packed(b'{"a":' + b"9" * 2_000_000 + b"}"),
        "bomb-of-bytes": ours('{"bytes":"' + "A" * 20_000_000 + '"}'),
        "unknown-kind": ours('{"exec":"import os"}'),
        "no-tree": packed(
            b'{"__metadata__":{"format":"ddpgrad","version":"1","sha256":"' + b"0" * 64 + b'"}}'
        ),
        "endless-size": ours('{"size":[' + ",".join(["9" * 300] * 1000) + "]}"),
        "colliding-keys": ours(json.dumps({"dict": [[key, 0] for key in COLLIDING]})),
        "colliding-set": ours(json.dumps({"set": COLLIDING})),
        "size-of-text": ours('{"size":["a"]}'),
        "pickle": pickle.dumps({"weight": [1.0]}),
        "pickle-that-runs": pickle.dumps(Runs()),
        "empty": b"",
        "noise": os.urandom(1_000_000),
    }


def archived(stream: bytes, **records: bytes) -> bytes:
    """A file as PyTorch's, around any pickle."""
    file = io.BytesIO()
    names = {name.replace("_", "/"): data for name, data in records.items()}
    archive.write(file, [("data.pkl", stream), *names.items()])
    return file.getvalue()


def deflated(size: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("archive/data.pkl", bytes(size))
    return file.getvalue()


def tensor(offset: bytes, size: bytes, stride: bytes, elements: bytes = b"K\x04") -> bytes:
    """A pickle of a tensor in the storage `data/0`."""
    storage = b"((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpu" + elements + b"tQ"
    return b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n" + storage + offset + size + stride + b"\x89NtR."


def torch_files() -> dict[str, bytes]:
    sixteen, huge = bytes(16), b"\x8a\x08" + b"\xff" * 7 + b"\x0f"
    sound = archived(tensor(b"K\0", b"K\4\x85", b"K\1\x85"), data_0=sixteen)
    million = b"(" + b"K\1" * 1_000_000 + b"t"
    return {
        "zip-bomb": deflated(50_000_000),
        "zip-many-records": archived(b"N.", **{f"data_{i}": b"" for i in range(100_001)}),
        "zip-without-end": sound[:-30],
        "zip-claims-records": sound[:-14] + b"\xff\xff\xff\xff" + sound[-10:],
        "zip-and-more": sound + b"x",
        "pickle-that-runs.pt": archived(b"\x80\2cposix\nsystem\nX\x09\0\0\0touch ran\x85R."),
        "pickle-that-imports.pt": archived(b"\x80\2cantigravity\nfly\n."),
        "pickle-that-evaluates.pt": archived(b"\x80\2cbuiltins\neval\nX\x01\0\0\x001\x85R."),
        "tensor-beyond.pt": archived(tensor(b"K\1", b"K\4\x85", b"K\1\x85"), data_0=sixteen),
        "tensor-strides-out.pt": archived(tensor(b"K\0", b"K\2\x85", huge + b"\x85"), data_0=sixteen),
        "tensor-negative.pt": archived(tensor(b"K\0", b"K\2\x85", b"J\xff\xff\xff\xff\x85"), data_0=sixteen),
        "tensor-of-exabytes.pt": archived(tensor(b"K\0", huge + b"\x85", b"K\0\x85"), data_0=sixteen),
        "storage-of-exabytes.pt": archived(tensor(b"K\0", b")", b")", huge), data_0=sixteen),
        "storage-absent.pt": archived(tensor(b"K\0", b")", b")")),
        "order-of-bytes.pt": archived(
            tensor(b"K\0", b"K\4\x85", b"K\1\x85"), data_0=sixteen, byteorder=b"lattle"
        ),
        "deep.pt": archived(b"(" * 5_000_000),
        "wide.pt": archived(b"\x80\2](" + b"]" * 5_000_000 + b"e."),
        "nested-tuples.pt": archived(b"\x80\2)" + b"\x85" * 5_000_000 + b"."),
        "many-values.pt": archived(b"\x80\2](" + b"N" * 10_000_000 + b"e."),
        "many-sets.pt": archived(b"\x80\2](" + b"\x8f" * 5_000_000 + b"e."),
        "same-set-again.pt": archived(
            b"\x80\2" + million + b"q\0" + b"cbuiltins\nset\nh\0\x85R" * 100_000 + b"."
        ),
        "key-of-exponential-size.pt": archived(b"\x80\2}N" + b"q\0h\0\x86" * 100 + b"Ns."),
        "bytes-of-exabytes.pt": archived(b"\x80\2cbuiltins\nbytearray\n" + huge + b"\x85R."),
        "old-storage-of-exabytes.pt": old(tensor(b"K\0", b")", b")", huge).replace(b"tQ", b"NtQ", 1)),
        "old-keys-of-exponential-size.pt": old(b"\x80\2}.", b"\x80\2]N" + b"q\0h\0\x86" * 100 + b"a."),
        "dtype-of-exponential-size.pt": archived(b"\x80\2cnumpy\ndtype\nN" + b"q\0h\0\x86" * 100 + b"\x85R."),
        "colliding-keys.pt": archived(pickle.dumps(dict.fromkeys(COLLIDING), 2)),
        "colliding-set.pt": archived(
            b"\x80\2cbuiltins\nset\n" + pickle.dumps(COLLIDING, 2)[2:-1] + b"\x85R."
        ),
        "old-truncated.pt": old(b"\x80\2}.")[:-10],
    }


def old(stream: bytes, keys: bytes = b"\x80\2](X\1\0\0\x000e.") -> bytes:
    """A file as PyTorch wrote it before 1.6, around any pickle."""
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    first, *rest = (pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, machine))
    return b"".join([first, *rest, stream, keys])


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


def checkpoint(folder: Path) -> Path:
    checkpoints = Checkpointer(folder)
    checkpoints.save(1, model={"weight": ddpgrad.ones(4)}, notes=[1])
    return folder / "step_00000001"


def reseal(newest: Path, change) -> None:
    """Change the manifest of a checkpoint, and make its seal right again."""
    path = newest / "MANIFEST.json"
    text = path.read_text()
    seal = json.loads(text)["sha256"]
    text = change(text.replace(seal, "0" * 64, 1))
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))


def link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap(newest: Path) -> None:
    first, second, aside = newest / "model.safetensors", newest / "notes.safetensors", newest / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


CHECKPOINTS = {
    "link-out": lambda newest: link(newest / "model.safetensors", "/etc/passwd"),
    "link-of-manifest": lambda newest: link(newest / "MANIFEST.json", "/dev/zero"),
    "pipe": lambda newest: pipe(newest / "model.safetensors"),
    "pipe-as-manifest": lambda newest: pipe(newest / "MANIFEST.json"),
    "folder": lambda newest: ((newest / "model.safetensors").unlink(), (newest / "model.safetensors").mkdir()),
    "swapped": swap,
    "name-leads-out": lambda newest: reseal(newest, lambda text: text.replace("model.safe", "../../model.safe")),
    "object-leads-out": lambda newest: reseal(newest, lambda text: text.replace('"model"', '"../model"')),
    "objects-no-table": lambda newest: reseal(newest, lambda _: json.dumps(
        {"format": json.loads(_)["format"], "sha256": "0" * 64, "objects": 5})),
    "million-objects": lambda newest: reseal(newest, lambda text: text.replace(
        '"objects": {', '"objects": {' + ",".join(f'"a{i}": {{}}' for i in range(1_000_000)) + ",", 1)),
    "manifest-of-100-mb": lambda newest: (newest / "MANIFEST.json").write_bytes(b"[" * 100_000_000),
    "step-negative": lambda newest: reseal(newest, lambda text: text.replace('"step": 1', '"step": -5')),
    "step-of-another": lambda newest: reseal(newest, lambda text: text.replace('"step": 1', '"step": 2')),
    "step-no-number": lambda newest: reseal(newest, lambda text: text.replace('"step": 1', '"step": "1"')),
}  # fmt: skip
