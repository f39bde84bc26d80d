"""SummaryWriter: scalars, histograms, images and texts of a training run, for TensorBoard."""

from __future__ import annotations

import io
import itertools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...compat.settings import say_once
from ...core.missing import nearest
from ...ops.creation.data import elements_of
from .event_file import EventFile, block, double, doubles, integer, single
from .plugins import PluginWriter
from .summary import hparams

_TEXT, _STRING = "text", 7  # TensorBoard's plugin for texts; TensorFlow's number of the type string
_number = itertools.count()


class SummaryWriter(PluginWriter):
    """Writes one event file below `log_dir`, by default `runs/DATE_HOST` and `comment`.

    A value is a number, a tensor or an array; `global_step` is its place on the axis. What was written
    reaches the file every `flush_secs` seconds, and on `flush()` and `close()`. purge_step and max_queue
    are accepted for PyTorch's sake. Figures, images and histograms are computed here, from copies on the CPU.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = Path("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._suffix, self._flush_secs = filename_suffix, flush_secs
        self._files: dict[str, EventFile] = {}
        self._flushed = time.monotonic()
        self._file(self.log_dir)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number, on the curve `tag`."""
        if isinstance(scalar_value, (list, tuple, dict)) or scalar_value is None:
            kind = type(scalar_value).__name__
            raise NotImplementedError(f"add_scalar: got a {kind}, expected a number, an array or a tensor")
        number = elements_of(scalar_value)
        if number.size != 1:
            raise AssertionError(
                f"add_scalar: scalar should be 0D, got an array of shape {list(number.shape)}"
            )
        self._add(tag, single(2, float(number.reshape(()))), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Numbers of several curves on one chart; each has an event file in a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            place = str(Path(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}"))
            content = single(2, float(elements_of(value).reshape(())))
            self._add(main_tag, content, global_step, walltime, place)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How the elements of `values` are distributed.

        bins: their number or edges, or NumPy's name of a rule. max_bins: neighbours are joined where there are more.
        """
        data = elements_of(values).astype(np.float64).reshape(-1)
        if not data.size:
            raise ValueError("add_histogram: the input has no element.")
        edges = _DEFAULT_EDGES if isinstance(bins, str) and bins == "tensorflow" else bins
        counts, limits = np.histogram(data, edges)
        if max_bins is not None and len(counts) > max_bins:
            joined = len(counts) // max_bins
            counts = np.add.reduceat(counts, np.arange(0, len(counts), joined))
            limits = np.append(limits[:-1:joined], limits[-1])
        filled = np.nonzero(counts)[0]
        first, last = (filled[0], filled[-1] + 1) if filled.size else (0, 1)
        # A message has the upper limits of buckets only: an empty one says where the first begins.
        counts, limits = np.append(0, counts[first:last]), limits[first : last + 1]
        numbers = data.min(), data.max(), data.size, data.sum(), float(data @ data)
        self.add_histogram_raw(tag, *numbers, limits, counts, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that the program has made: the upper limits of its buckets, and how many elements lie in each."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        content = b"".join(
            double(field, float(value)) for field, value in enumerate((min, max, num, sum, sum_squares), 1)
        )
        content += doubles(6, bucket_limits) + doubles(7, bucket_counts)
        self._add(tag, block(5, content), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image of bytes, or of floats in 0 … 1. Needs Pillow."""
        axes = dataformats.upper()
        pixels = elements_of(img_tensor)
        if sorted(axes) not in (["C", "H", "W"], ["H", "W"]) or pixels.ndim != len(axes):
            raise ValueError(
                f"add_image: an image of shape {pixels.shape} is not of the form {dataformats!r}"
            )
        pixels = pixels.transpose([axes.index(axis) for axis in ("HWC" if "C" in axes else "HW")])
        self._add(tag, block(4, _picture(pixels.reshape(*pixels.shape[:2], -1))), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Images of one size side by side, in rows of eight. Needs Pillow."""
        axes = dataformats.upper()
        if sorted(axes) != ["C", "H", "N", "W"]:
            raise ValueError(f"add_images: the form is some order of NCHW, not {dataformats!r}")
        picture = _grid(elements_of(img_tensor).transpose([axes.index(axis) for axis in "NHWC"]))
        self._add(tag, block(4, _picture(picture)), global_step, walltime)

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Videos (N, T, C, H, W) of one size side by side, bytes or floats in 0 … 1, as a moving GIF. Needs Pillow."""
        frames = elements_of(vid_tensor)
        if frames.ndim != 5:
            raise ValueError(f"add_video: a video has the form (N, T, C, H, W), not {list(frames.shape)}")
        pictures = [_grid(frame.transpose(0, 2, 3, 1)) for frame in frames.swapaxes(0, 1)]
        self._add(tag, block(4, _moving(pictures, fps)), global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib, which is closed then unless `close` is False."""
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=figure.dpi)
        width, height = (round(side * figure.dpi) for side in figure.get_size_inches())
        self._add(tag, block(4, _encoded(height, width, 4, file.getvalue())), global_step, walltime)
        if close:
            figure.clear()
            import matplotlib.pyplot

            matplotlib.pyplot.close(figure)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, in Markdown."""
        content = block(9, block(1, block(1, _TEXT)))
        content += block(8, integer(1, _STRING) + block(2, block(2, integer(1, 1))) + block(8, text_string))
        self._add(f"{tag}/text_summary", content, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Hyperparameters and the metrics they led to: a run of its own, in the folder `run_name` (default: the time)."""
        messages = hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(Path(self.log_dir, run_name or str(time.time()))) as run:
            for message in messages:
                run.file_writer.add_summary(message, global_step)
            for name, value in metric_dict.items():
                run.add_scalar(name, value, global_step)

    @property
    def file_writer(self) -> EventFile:
        """The event file of `log_dir`, for Summary messages that a program has made."""
        return self._file(self.log_dir)

    def _get_file_writer(self) -> EventFile:
        return self.file_writer

    def add_graph(self, model: Any, input_to_model: Any = None, *args: Any, **kwargs: Any) -> None:
        """Without effect, which one warning says; `ddpgrad.summary` prints a model's layers."""
        say_once(
            "add_graph",
            "SummaryWriter.add_graph has no effect in ddpgrad; ddpgrad.summary prints a model's layers",
        )

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return self.log_dir

    def flush(self) -> None:
        """Hand everything to the files."""
        self._flushed = time.monotonic()
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """End the files; what is added later begins a new one."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        hint = nearest(name, (n for n in dir(type(self)) if n.startswith("add_")))
        raise AttributeError(f"ddpgrad's SummaryWriter has no '{name}'{hint}", name=name, obj=self)

    def _file(self, place: str) -> EventFile:
        if place not in self._files:
            name = (
                f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{next(_number)}"
            )
            self._files[place] = EventFile(Path(place, name + self._suffix))
        return self._files[place]

    def _add(
        self, tag: str, content: bytes, step: int | None, walltime: float | None, place: str | None = None
    ) -> None:
        self._file(place or self.log_dir).add_summary(block(1, block(1, tag) + content), step, walltime)
        if time.monotonic() - self._flushed > self._flush_secs:
            self.flush()


def _default_edges() -> np.ndarray:
    """Edges whose distance grows by a tenth from 1e-12 on, on both sides of 0."""
    above = 1e-12 * 1.1 ** np.arange(774)
    largest = np.finfo(np.float64).max
    return np.concatenate([[-largest], -above[::-1], [0.0], above, [largest]])


_DEFAULT_EDGES = _default_edges()


def _grid(pixels: np.ndarray) -> np.ndarray:
    """Pictures (N, H, W, C) side by side, in rows of eight."""
    count, height, width, channels = pixels.shape
    columns = min(count, 8)
    rows = -(-count // columns)
    grid = np.zeros((rows * columns, height, width, channels), pixels.dtype)
    grid[:count] = pixels
    grid = grid.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return grid.reshape(rows * height, columns * width, channels)


def _picture(pixels: np.ndarray) -> bytes:
    """The Image message of pixels (H, W, C)."""
    file = io.BytesIO()
    _image(pixels).save(file, format="png")
    height, width, channels = pixels.shape
    return _encoded(height, width, channels, file.getvalue())


def _moving(pictures: list[np.ndarray], fps: float) -> bytes:
    """The Image message of pictures (H, W, C) that follow one another."""
    file = io.BytesIO()
    first, *rest = map(_image, pictures)
    first.save(file, format="gif", save_all=True, append_images=rest, duration=1000 / fps, loop=0)
    height, width, channels = pictures[0].shape
    return _encoded(height, width, channels, file.getvalue())


def _image(pixels: np.ndarray) -> Any:
    from PIL import Image

    if pixels.dtype != np.uint8:
        pixels = np.clip(pixels * 255.0, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _encoded(height: int, width: int, channels: int, data: bytes) -> bytes:
    return integer(1, height) + integer(2, width) + integer(3, channels) + block(4, data)
