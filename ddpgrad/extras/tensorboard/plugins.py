"""What TensorBoard's plugins show beside scalars and pictures: curves, embeddings, sounds, charts of several tags, tensors.

Source of the field numbers: TensorFlow's summary.proto and tensor.proto, and in tensorboard/plugins plugin_data.proto of
pr_curve and layout.proto of custom_scalar.
"""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...ops.creation.data import elements_of
from .event_file import block, integer, single

_FLOAT, _STRING = 1, 7  # TensorFlow's numbers of types
_TYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
          "complex128": 18, "float16": 19}  # fmt: skip
_MOST_THRESHOLDS = 127
_LEAST = 1e-7  # a count, where one is divided by


class PluginWriter:
    """The part of `SummaryWriter` that writes for plugins."""

    log_dir: str
    _embeddings: str = ""

    def _add(
        self, tag: str, content: bytes, step: int | None, walltime: float | None, place: str | None = None
    ) -> None:
        raise NotImplementedError

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = _MOST_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision over recall. labels: 0 or 1 for each sample; predictions: the probability of 1; at most 127 thresholds."""
        truth, guess = elements_of(labels).astype(np.float64), elements_of(predictions)
        count = min(num_thresholds, _MOST_THRESHOLDS)
        weight = 1.0 if weights is None else elements_of(weights)
        places = np.floor(guess * (count - 1)).astype(np.int32)

        def at_least(amounts: Any) -> np.ndarray:
            """What lies at each threshold or above."""
            found = np.histogram(places, count, (0, count - 1), weights=amounts)[0]
            return np.cumsum(found[::-1])[::-1]

        hits, alarms = at_least(truth * weight), at_least((1.0 - truth) * weight)
        missed = hits[0] - hits
        rows = (
            hits, alarms, alarms[0] - alarms, missed,
            hits / np.maximum(_LEAST, hits + alarms), hits / np.maximum(_LEAST, hits + missed),
        )  # fmt: skip
        self._curve(tag, np.stack(rows), count, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = _MOST_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve whose numbers the program has, each of one number for each threshold."""
        rows = (
            true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall,
        )  # fmt: skip
        stacked = np.stack([elements_of(row) for row in rows])
        self._curve(tag, stacked, min(num_thresholds, _MOST_THRESHOLDS), global_step, walltime)

    def _curve(
        self, tag: str, rows: np.ndarray, thresholds: int, step: int | None, walltime: float | None
    ) -> None:
        settings = integer(2, thresholds)
        content = _plugin("pr_curves", settings) + block(8, _tensor(rows.astype(np.float32)))
        self._add(tag, content, step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Charts of several scalars: {category: {chart: ["Multiline", [tag, ...]] or ["Margin", [value, lower, upper]]}}."""
        categories = b""
        for category, charts in layout.items():
            drawn = b""
            for title, (kind, tags) in charts.items():
                if kind == "Margin":
                    if len(tags) != 3:
                        raise AssertionError(f"a chart with a margin has 3 tags, got {len(tags)}")
                    lines = block(3, block(1, b"".join(block(i, tag) for i, tag in enumerate(tags, 1))))
                else:
                    lines = block(2, b"".join(block(1, tag) for tag in tags))
                drawn += block(2, block(1, title) + lines)
            categories += block(2, block(1, category) + drawn)
        text = integer(1, _STRING) + block(2, b"") + block(8, categories)
        self._add("custom_scalars__config__", _plugin("custom_scalars", b"") + block(8, text), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of several scalars: see `add_custom_scalars`."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of a scalar between two others, tags (value, lower, upper): see `add_custom_scalars`."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound of one channel: numbers between -1 and 1, which others are cut to."""
        wave_form = elements_of(snd_tensor).squeeze()
        if wave_form.ndim != 1:
            raise AssertionError(f"input tensor should be 1 dimensional, got {list(wave_form.shape)}")
        samples = (np.clip(wave_form, -1, 1) * np.iinfo(np.int16).max).astype("<i2")
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(sample_rate)
            sound.writeframes(samples.tobytes())
        content = single(1, sample_rate) + integer(2, 1) + integer(3, len(samples))
        content += block(4, file.getvalue()) + block(5, "audio/wav")
        self._add(tag, block(6, content), global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """All elements of a tensor; ValueError for a type that TensorFlow does not have."""
        array = elements_of(tensor)
        if array.dtype.name not in _TYPES:
            raise ValueError(f"{tag} has unsupported tensor dtype {array.dtype}")
        self._add(tag, _plugin("tensor", b"") + block(8, _tensor(array)), global_step, walltime)

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Points (N, D) for the projector, with a label (or a row of them, under `metadata_header`) and a picture for each.

        label_img: (N, C, H, W), between 0 and 1.
        """
        points = elements_of(mat)
        if points.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        step = str(global_step or 0).zfill(5)
        folder = Path(self.log_dir, step, tag.replace("/", "%2f"))
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.relative_to(self.log_dir).as_posix()
        lines = [f'tensor_name: "{tag}:{step}"', f'tensor_path: "{place}/tensors.tsv"']
        if metadata is not None:
            if len(metadata) != len(points):
                raise AssertionError("#labels should equal with #data points")
            rows = [str(one) for one in metadata]
            if metadata_header:
                rows = ["\t".join(map(str, row)) for row in [metadata_header, *metadata]]
            (folder / "metadata.tsv").write_text("\n".join(rows) + "\n")
            lines.append(f'metadata_path: "{place}/metadata.tsv"')
        if label_img is not None:
            pictures = elements_of(label_img)
            if len(pictures) != len(points):
                raise AssertionError("#images should equal with #data points")
            _sprite(pictures).save(folder / "sprite.png")
            height, width = pictures.shape[2:]
            sizes = f"single_image_dim: {width}\n    single_image_dim: {height}"
            lines.append(f'sprite {{\n    image_path: "{place}/sprite.png"\n    {sizes}\n  }}')
        text = "\n".join("\t".join(str(number) for number in row.tolist()) for row in points)
        (folder / "tensors.tsv").write_text(text + "\n")
        self._embeddings += "embeddings {\n  " + "\n  ".join(lines) + "\n}\n"
        Path(self.log_dir, "projector_config.pbtxt").write_text(self._embeddings)


def _plugin(name: str, settings: bytes) -> bytes:
    return block(9, block(1, block(1, name) + block(2, settings)))


def _tensor(array: np.ndarray) -> bytes:
    """The Tensor message of an array, its elements as they lie."""
    shape = b"".join(block(2, integer(1, n)) for n in array.shape)
    elements = np.ascontiguousarray(array).tobytes()
    return integer(1, _TYPES[array.dtype.name]) + block(2, shape) + block(4, elements)


def _sprite(pictures: np.ndarray) -> Any:
    """Pictures (N, C, H, W) side by side in a square."""
    from PIL import Image

    count, _, height, width = pictures.shape
    side = math.ceil(count**0.5)
    square = np.zeros((side * max(height, width), side * width, 3), np.float64)
    for i, picture in enumerate(pictures):
        y, x = i // side * height, i % side * width
        square[y : y + height, x : x + width] = np.broadcast_to(picture, (3, *picture.shape[1:])).transpose(
            1, 2, 0
        )
    return Image.fromarray(np.clip(square * 255, 0, 255).astype(np.uint8))
