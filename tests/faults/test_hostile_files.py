"""Hostile files: each is refused with a typed error, in about a second and 200 MB."""

import contextlib
import importlib.util
import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_samples import (
    CHECKPOINTS,
    archived,
    checkpoint,
    entries,
    files,
    old,
    ours,
    packed,
    reseal,
    tensor,
    torch_files,
)
from hypothesis import given
from hypothesis import strategies as st

import ddpgrad
from ddpgrad import safetensors
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer

HERE = Path(__file__).parent
# Of the processor's time, or some starts of Python where it is slow or shared.
MOST_SECONDS, MOST_STARTS = 1.0, 4
MOST_MB = 200


def test_every_hostile_file_is_refused_soon_and_in_little_memory(tmp_path):
    hostile = files() | torch_files()
    for name, data in hostile.items():
        (tmp_path / name).write_bytes(data)
    for name, spoil in CHECKPOINTS.items():
        spoil(checkpoint(tmp_path / f"checkpoint-{name}"))
    hub = tmp_path / "hub-index"
    hub.mkdir()
    (hub / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../../etc/passwd"}}')
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile.py"), str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    start, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2 * len(hostile) + 2 * len(CHECKPOINTS) + 1
    assert not (tmp_path / "ran").exists()
    wrong = [row for row in rows if row[1] != "CheckpointError" and row[0] not in HARMLESS]
    assert not wrong, wrong
    most = max(MOST_SECONDS, MOST_STARTS * start)
    costly = [row for row in rows if row[2] > most or row[3] > MOST_MB]
    assert not costly, costly


# Well-formed, if odd: reading them is no mistake where it is cheap. (The second way reads the tensors alone,
# and there are none.)
HARMLESS = {
    "bomb-of-bytes/0", "bomb-of-bytes/1", "endless-size/0", "endless-size/1", "deep-tree/1", "no-tree/1",
    "unknown-kind/1", "colliding-keys/1", "colliding-set/1", "size-of-text/1",
}  # fmt: skip


def read(path: Path) -> None:
    """Read a file in all ways; any error must be a CheckpointError."""
    for way in (ddpgrad.load, safetensors.load_file):
        with contextlib.suppress(CheckpointError):
            way(path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "file.safetensors"
    tensors = {"a": ddpgrad.ones(3), "b": [ddpgrad.zeros(2, 2), 1.5, None, ("x", {1: 2})]}
    ddpgrad.save(tensors, path)
    return path.read_bytes()


numbers = st.one_of(st.integers(-2, 40), st.integers(), st.floats(), st.none(), st.text(max_size=3))
shapes = st.lists(st.one_of(st.integers(-1, 5), numbers), max_size=4)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(st.sampled_from(["F32", "U8", "BOOL", "BF16", "F8", ""]), numbers),
        "shape": st.one_of(shapes, numbers),
        "data_offsets": st.one_of(
            st.lists(numbers, max_size=3), st.tuples(st.integers(0, 9), st.integers(0, 40))
        ),
    },
)
headers = st.dictionaries(
    st.one_of(st.text(max_size=4), st.just("__metadata__")), st.one_of(tensors, numbers)
)
trees = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["tensor", "array", "scalar", "tuple", "dict", "ordered", "set", "size", "dtype", "device",
                             "float", "complex", "bytes", "frozenset", "no"]),
            inner, min_size=1, max_size=2,
        ),
    ),
    max_leaves=8,
)  # fmt: skip


@given(header=headers, body=st.binary(max_size=50))
def test_any_header_is_read_or_refused(tmp_path, header, body):
    path = tmp_path / "file"
    path.write_bytes(packed(json.dumps(header).encode(), body))
    read(path)


@given(place=st.integers(0, 30), value=st.one_of(numbers, st.lists(numbers, max_size=2), st.just({})))
def test_any_kind_in_a_manifest_is_read_or_refused(tmp_path, place, value):
    folder = tmp_path / "checkpoints"
    newest = folder / "step_00000001"
    if not newest.exists():
        checkpoint(folder)
        (tmp_path / "sound").write_text((newest / "MANIFEST.json").read_text())
    (newest / "MANIFEST.json").write_text((tmp_path / "sound").read_text())
    reseal(newest, lambda text: json.dumps(replaced(json.loads(text), place, value)))
    with contextlib.suppress(CheckpointError):
        Checkpointer(folder).resume(model={}, notes=[])


def replaced(fields, place: int, value):
    """`fields` with `value` in place of one of its nodes."""
    nodes = [(fields, key) for key in fields if key not in ("format", "sha256")]
    for inside, key in nodes:
        if isinstance(inside[key], dict):
            nodes += [(inside[key], inner) for inner in inside[key]]
    inside, key = nodes[place % len(nodes)]
    inside[key] = value
    return fields


@given(tree=trees)
def test_any_tree_is_read_or_refused(tmp_path, tree):
    path = tmp_path / "file"
    path.write_bytes(ours(json.dumps(tree)))
    read(path)


@given(place=st.floats(0, 1, exclude_max=True), put=st.binary(max_size=12), cut=st.integers(0, 12))
def test_any_change_of_a_sound_file_is_refused(tmp_path, sound, place, put, cut):
    at = int(place * len(sound))
    changed = sound[:at] + put + sound[at + cut :]
    path = tmp_path / "file"
    path.write_bytes(changed)
    if changed == sound:
        ddpgrad.load(path)
    else:
        with pytest.raises(CheckpointError):
            ddpgrad.load(path)
    read(path)


@pytest.fixture(scope="module")
def sound_pt(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "file.pt"
    base = ddpgrad.arange(6.0)
    obj = {
        "a": base,
        "b": [base[2:].view(2, 2).T, 1.5, None, ("x", {1: {2}})],
        "c": ddpgrad.nn.Parameter(base),
    }
    ddpgrad.save(obj, path)
    return path.read_bytes()


@given(place=st.floats(0, 1, exclude_max=True), put=st.binary(max_size=12), cut=st.integers(0, 12))
def test_any_change_of_a_torch_file_is_refused_or_changes_nothing(sound_pt, place, put, cut):
    at = int(place * len(sound_pt))
    try:
        loaded = ddpgrad.load(io.BytesIO(sound_pt[:at] + put + sound_pt[at + cut :]))
    except CheckpointError:
        return
    assert repr(loaded) == repr(ddpgrad.load(io.BytesIO(sound_pt)))


OPCODES = b"(.)NKMJGXU]}aeshqtubcQRrj\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8f"
GLOBALS = [
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_tensor_v3\n", b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nSize\n", b"ctorch\ndevice\n", b"ccollections\nOrderedDict\n",
    b"cbuiltins\nset\n", b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n",
    b"cnumpy\nndarray\n", b"cposix\nsystem\n", b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nTensor\n",
    tensor(b"K\0", b"K\4\x85", b"K\1\x85")[2:-1],
]  # fmt: skip
pieces = st.one_of(
    st.sampled_from([bytes([code]) for code in OPCODES]),
    st.sampled_from(GLOBALS),
    st.binary(max_size=3),
    st.integers(0, 9).map(lambda n: b"K%c" % n),
    st.text(max_size=3).map(lambda s: b"X" + struct.pack("<L", len(s.encode())) + s.encode()),
)


@given(stream=st.lists(pieces, max_size=30).map(b"".join))
def test_any_pickle_is_read_or_refused(stream):
    for data in (archived(stream + b".", data_0=bytes(16)), old(stream + b".")):
        with contextlib.suppress(CheckpointError):
            ddpgrad.load(io.BytesIO(data))


@pytest.mark.full
def test_a_fuzzer_finds_nothing(tmp_path, sound):
    """Atheris looks for inputs that lead to new branches of the readers, for some seconds."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip('needs Atheris: pip install "ddpgrad[test]" where there is a build of it')
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "sound").write_bytes(sound)
    (corpus / "archive").write_bytes(archived(tensor(b"K\0", b"K\4\x85", b"K\1\x85"), data_0=bytes(16)))
    (corpus / "old").write_bytes(old(b"\x80\2}."))
    (corpus / "plain").write_bytes(packed(entries(a=(0, 8, [2])), bytes(8)))
    (corpus / "tree").write_bytes(ours('{"dict":[["a",{"tuple":[1,{"float":"nan"}]}]]}'))
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz_files.py"), "-max_total_time=8", "-rss_limit_mb=2048", "-timeout=10",
         "-artifact_prefix=" + str(tmp_path) + "/", str(corpus)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr
