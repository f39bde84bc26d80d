"""SummaryWriter: the records of its files are decoded here, independently of how they are written."""

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

import ddpgrad
from ddpgrad.utils.tensorboard import SummaryWriter
from ddpgrad.utils.tensorboard.event_file import _checksum
from ddpgrad.utils.tensorboard.summary import hparams


def fields(message: bytes) -> dict[int, list]:
    """Field number -> values, of a protocol-buffer message."""
    found: dict[int, list] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = message[place : place + size]
            place += size
            if kind != 2:
                value = struct.unpack("<d" if kind == 1 else "<f", value)[0]
        found.setdefault(number, []).append(value)
    return found


def events(folder) -> list[dict[int, list]]:
    """All events of the one file in `folder`, in order, after its version."""
    (path,) = (p for p in Path(folder).iterdir() if p.is_file())
    data, found = path.read_bytes(), []
    while data:
        size, check = struct.unpack("<QI", data[:12])
        assert check == _checksum(data[:8])
        message = data[12 : 12 + size]
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == _checksum(message)
        found.append(fields(message))
        data = data[16 + size :]
    assert found[0][3] == [b"brain.Event:2"]
    return found[1:]


def value(event) -> dict[int, list]:
    (summary,) = event[5]
    return fields(fields(summary)[1][0])


def test_checksums_are_those_of_the_format():
    plain = 0xE3069283  # CRC-32C of the digits, the test vector of RFC 3720
    assert _checksum(b"123456789") == ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_lie_on_their_curves(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step, number in enumerate((ddpgrad.tensor(0.5), 2, np.float64(-1.0))):
            writer.add_scalar("loss/train", number, 300 * step, walltime=9.0)
        writer.add_scalars("both", {"a": 1, "b": 2.5}, 7)
    found = [(e[1][0], e[2][0], value(e)[1][0], value(e)[2][0]) for e in events(tmp_path)]
    assert found == [(9.0, 300 * i, b"loss/train", v) for i, v in enumerate((0.5, 2.0, -1.0))]
    for tag, number in (("a", 1.0), ("b", 2.5)):
        (event,) = events(tmp_path / f"both_{tag}")
        assert (event[2], value(event)[1], value(event)[2]) == ([7], [b"both"], [number])


def test_hyperparameters_are_a_run_of_their_own(tmp_path):
    parameters = {"lr": 0.5, "name": "adam", "on": True, "beta": ddpgrad.tensor(2.0), "none": None}
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(
            parameters, {"loss": 1.5}, {"name": ["adam", "sgd"]}, run_name="run", global_step=4
        )
        for wrong, error in (
            (([], {}), TypeError),
            (({"a": []}, {}), ValueError),
            (({"a": 1}, {}, {"a": ["b"]}), TypeError),
        ):
            with pytest.raises(error, match=r"dictionary|hyperparameter"):
                writer.add_hparams(*wrong)
        writer.file_writer.add_summary(hparams({}, {})[2], 2)
    assert events(tmp_path)[0][2] == [2]
    found = events(tmp_path / "run")
    assert [e[2] for e in found] == [[4]] * 4 and value(found[3])[2] == [1.5]
    about, begun, ended = (fields(fields(fields(value(e)[9][0])[1][0])[2][0]) for e in found[:3])
    infos = [fields(info) for info in fields(about[2][0])[4]]
    assert [(info[1][0], info[4][0]) for info in infos] == [
        (b"lr", 3),
        (b"name", 1),
        (b"on", 3),
        (b"beta", 3),
    ]
    assert [fields(v)[3][0] for v in fields(infos[1][5][0])[1]] == [b"adam", b"sgd"]
    assert fields(fields(fields(about[2][0])[5][0])[1][0])[2] == [b"loss"]
    pairs = {entry[1][0]: fields(entry[2][0]) for entry in map(fields, fields(begun[3][0])[1])}
    assert pairs == {b"lr": {2: [0.5]}, b"name": {3: [b"adam"]}, b"on": {2: [1.0]}, b"beta": {2: [2.0]}}
    assert fields(ended[4][0])[1] == [1]


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 4, [-10.0, 0.0, 10.0]])
def test_histograms_count_every_element(tmp_path, bins):
    data = ddpgrad.tensor([-2.0, -2.0, 0.0, 1.0, 3.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", data, 1, bins=bins)
    histogram = fields(value(events(tmp_path)[0])[5][0])
    assert [histogram[n][0] for n in (1, 2, 3, 4, 5)] == [-2.0, 3.0, 5.0, 0.0, 18.0]
    limits, counts = (np.frombuffer(histogram[n][0], "<f8") for n in (6, 7))
    assert counts.sum() == 5
    assert len(limits) == len(counts)
    assert (np.cumsum(counts) >= [(data.numpy() < limit).sum() for limit in limits]).all()
    assert limits[-1] >= 3.0


def test_images_come_out_as_they_went_in(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pixels = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("bytes", ddpgrad.from_numpy(pixels), 1)
        writer.add_image("floats", pixels.transpose(1, 2, 0) / 255.0, 1, dataformats="HWC")
        writer.add_image("grey", pixels[0], 1, dataformats="HW")
        writer.add_images("many", np.stack([pixels] * 9), 1)
        writer.add_video("moving", np.stack([np.stack([pixels, 255 - pixels])] * 2), 1, fps=2)
        with pytest.raises(ValueError, match="not of the form 'CHW'"):
            writer.add_image("wrong", pixels[0], 1)
        with pytest.raises(ValueError, match="has the form"):
            writer.add_video("wrong", pixels, 1)
        with pytest.raises(AssertionError, match="should be 0D"):
            writer.add_scalar("wrong", np.ones(2))
    found = []
    for event in events(tmp_path):
        image = fields(value(event)[4][0])
        picture = np.asarray(image_module.open(io.BytesIO(image[4][0])))
        assert (image[1][0], image[2][0]) == picture.shape[:2]
        found.append(picture)
    expected = pixels.transpose(1, 2, 0)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_allclose(found[1], expected, atol=1)
    np.testing.assert_array_equal(found[2], pixels[0])
    assert found[3].shape == (8, 40, 3)
    np.testing.assert_array_equal(found[3][:4, 35:], expected)
    np.testing.assert_array_equal(found[3][4:, :5], expected)
    video = image_module.open(io.BytesIO(fields(value(events(tmp_path)[4])[4][0])[4][0]))
    assert (video.n_frames, video.size, video.info["duration"]) == (2, (10, 4), 500)


def test_texts_and_what_is_not_there(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "grüße", 2)
        with pytest.raises(AttributeError, match="no 'add_histogramm'; did you mean add_histogram"):
            writer.add_histogramm("h", [1])
        with pytest.raises(ValueError, match="no element"):
            writer.add_histogram("h", [])
    (event,) = events(tmp_path)
    assert value(event)[1] == [b"note/text_summary"]
    assert fields(value(event)[8][0])[8] == ["grüße".encode()]


def test_a_closed_writer_begins_a_new_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="_try")
    writer.close()
    writer.add_scalar("a", 1.0)
    writer.flush()
    files = list(Path(writer.get_logdir()).iterdir())
    writer.close()
    assert len(files) == 2
    assert writer.log_dir.startswith("runs")
    assert writer.log_dir.endswith("_try")


def test_histograms_have_the_lower_limit_of_their_first_bucket_and_no_more_buckets_than_asked_for(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("all", np.arange(90), bins=90)
        writer.add_histogram("joined", np.arange(90), bins=90, max_bins=9)
    counts = [fields(value(event)[5][0])[7][0] for event in events(tmp_path)]
    all_counts, joined = (np.frombuffer(packed, "<f8").tolist() for packed in counts)
    assert all_counts == [0.0] + [1.0] * 90 and joined == [0.0] + [10.0] * 9


def test_what_plugins_show_is_written(tmp_path):
    wave_form = np.array([0.0, 1.0, -2.0, 0.5])
    with SummaryWriter(tmp_path) as writer:
        writer.add_pr_curve("curve", np.array([0, 1, 1]), np.array([0.1, 0.5, 0.9]), 3, num_thresholds=5)
        writer.add_tensor("numbers", ddpgrad.arange(6).reshape(2, 3))
        writer.add_audio("sound", wave_form, sample_rate=8000)
        writer.add_custom_scalars({"losses": {"both": ["Multiline", ["a", "b"]]}})
        with pytest.raises(AssertionError, match="3 tags"):
            writer.add_custom_scalars_marginchart(["a", "b"])
        with pytest.raises(ValueError, match="bucket_limits"):
            writer.add_histogram_raw("h", 0, 1, 2, 1, 1, [1.0], [1, 1])
    curve, numbers, sound, chart = events(tmp_path)
    message = fields(value(curve)[8][0])
    rows = np.frombuffer(message[4][0], "<f4").reshape(6, 5)
    assert rows[0].tolist() == [2.0, 2.0, 2.0, 1.0, 0.0]  # of the two, as many have at least 0, 1/4, 1/2 ...
    assert rows[1].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert rows[5].tolist() == [1.0, 1.0, 1.0, 0.5, 0.0]
    message = fields(value(numbers)[8][0])
    assert np.frombuffer(message[4][0], "<i8").tolist() == list(range(6))
    with wave.open(io.BytesIO(fields(value(sound)[6][0])[4][0])) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
        assert np.frombuffer(file.readframes(4), "<i2").tolist() == [0, 32767, -32767, 16383]
    assert b"both" in fields(value(chart)[8][0])[8][0]


def test_embeddings_are_files_for_the_projector(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(np.eye(2), ["x", "y"], np.ones((2, 3, 4, 5)), tag="a/b")
        with pytest.raises(AssertionError, match="labels"):
            writer.add_embedding(np.eye(2), ["x"])
    folder = tmp_path / "00000" / "a%2fb"
    with image_module.open(folder / "sprite.png") as sprite:
        assert sprite.size == (10, 10)
    assert (folder / "tensors.tsv").read_text() == "1.0\t0.0\n0.0\t1.0\n"
    assert (folder / "metadata.tsv").read_text() == "x\ny\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "00000/a%2fb/tensors.tsv"' in config and "single_image_dim: 5" in config
