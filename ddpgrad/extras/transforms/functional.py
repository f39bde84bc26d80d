"""The transforms as functions, without random choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor, wrap
from ...nn import functional as F
from ...nn.functional.convolution import conv2d
from ...nn.functional.interpolation import interpolate
from .color import adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation, rgb_to_grayscale
from .image import InterpolationMode, check, get_dimensions, is_pil
from .rotation import rotate

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation", "center_crop",
    "convert_image_dtype", "crop", "erase", "gaussian_blur", "get_dimensions", "hflip", "normalize", "pad",
    "pil_to_tensor", "resize", "resized_crop", "rgb_to_grayscale", "rotate", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip


_PIL_DTYPES = {"I": np.int32, "I;16": np.uint16, "F": np.float32}


def to_tensor(pic: Any) -> Tensor:
    """A PIL image or array (H, W[, C]) as a tensor (C, H, W): bytes become floats in [0, 1], others stay."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic.reshape(*pic.shape[:2], -1).transpose(2, 0, 1)
    elif is_pil(pic):
        array = _pil_array(pic)
        if pic.mode == "1":
            array = array * np.uint8(255)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    if array.dtype == np.uint8:
        kind = dtypes.get_default_dtype().numpy
        array = np.ascontiguousarray(array, dtype=kind)
        array /= kind.type(255)
        return wrap(array)
    return wrap(np.ascontiguousarray(array))


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a tensor (C, H, W) of its own type, without scaling."""
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return wrap(np.ascontiguousarray(_pil_array(pic)))


def _pil_array(image: Any) -> np.ndarray:
    """(C, H, W)."""
    array = np.array(image, dtype=_PIL_DTYPES.get(image.mode, np.uint8))
    return array.reshape(image.height, image.width, -1).transpose(2, 0, 1)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or (H, W), floats in [0, 1] or bytes, or an array (H, W[, C]), as a PIL image."""
    from PIL import Image

    if not isinstance(pic, (Tensor, np.ndarray)):
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if isinstance(pic, Tensor):
        array = pic.numpy(force=True)
        array = array if array.ndim == 3 else array.reshape(1, *array.shape)
        if array.dtype.kind == "f" and mode != "F":
            array = (array * 255).astype(np.uint8)
        array = array.transpose(1, 2, 0)
    else:
        array = pic if pic.ndim == 3 else pic[:, :, None]
    if array.shape[2] > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {array.shape[2]} channels.")
    return Image.fromarray(np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array)).convert(
        mode
    )


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std for each channel of a float tensor (…, C, H, W)."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.shape}"
        )
    centre, scale = (_channels(values, tensor) for values in (mean, std))
    if (scale._array == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}: {list(std)}")
    out = tensor if inplace else tensor.clone()
    return out.sub_(centre).div_(scale)


def _channels(values: Any, tensor: Tensor) -> Tensor:
    numbers = values.tolist() if isinstance(values, Tensor) else values
    array = np.asarray(numbers, dtype=tensor.dtype.numpy)
    return wrap(array.reshape(-1, 1, 1) if array.ndim == 1 else array).to(tensor.device)


def convert_image_dtype(image: Tensor, dtype: Any = dtypes.float32) -> Tensor:
    """Another dtype, with values scaled so that each type's range of brightness maps to the other's."""
    old, new = image.dtype, dtypes.of(dtype)
    if old == new:
        return image
    if old.is_floating_point:
        if new.is_floating_point:
            return image.to(new)
        if (old == dtypes.float32 and new in (dtypes.int32, dtypes.int64)) or (
            old == dtypes.float64 and new == dtypes.int64
        ):
            raise RuntimeError(f"The cast from {old} to {new} cannot be performed safely.")
        largest = float(np.iinfo(new.numpy).max)
        return (image * (largest + 1.0 - 1e-3)).to(new)
    old_largest = np.iinfo(old.numpy).max
    if new.is_floating_point:
        return image.to(new) / float(old_largest)
    new_largest = np.iinfo(new.numpy).max
    if old_largest > new_largest:
        return image.div((old_largest + 1) // (new_largest + 1), rounding_mode="trunc").to(new)
    return image.to(new) * ((new_largest + 1) // (old_largest + 1))


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The part of that size from (top, left) on; black where it lies outside."""
    check("crop", img)
    if not isinstance(img, Tensor):
        return img.crop((left, top, left + width, top + height))
    h, w = img.shape[-2:]
    bottom, right = top + height, left + width
    inside = img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if min(top, left) >= 0 and bottom <= h and right <= w:
        return inside
    missing = [
        max(min(right, 0) - left, 0),
        max(right - max(w, left), 0),
        max(min(bottom, 0) - top, 0),
        max(bottom - max(h, top), 0),
    ]
    return F.pad(inside, missing)


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """The middle part of `output_size`, (height, width) or the side of a square; the image is padded if smaller."""
    height, width = pair(output_size)
    _, h, w = get_dimensions(img)
    if height > h or width > w:
        margins = [max(width - w, 0) // 2, max(height - h, 0) // 2]
        margins += [(max(width - w, 0) + 1) // 2, (max(height - h, 0) + 1) // 2]
        img = pad(img, margins)
        _, h, w = get_dimensions(img)
    return crop(img, round((h - height) / 2.0), round((w - width) / 2.0), height, width)


def pad(img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Margins: one number, (left and right, top and bottom), or (left, top, right, bottom).

    padding_mode: constant (`fill`), edge, reflect or symmetric.
    """
    check("pad", img)
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element tuple"
        )
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    left, top, right, bottom = (sides * 4)[:4] if len(sides) != 2 else sides * 2
    if isinstance(img, Tensor):
        if padding_mode == "constant":
            value = fill[0] if isinstance(fill, (list, tuple)) else fill
            return F.pad(img, [left, right, top, bottom], value=float(value))
        return wrap(_pad_array(img.numpy(force=True), left, top, right, bottom, padding_mode))
    if padding_mode == "constant":
        from PIL import ImageOps

        return ImageOps.expand(img, border=(left, top, right, bottom), fill=fill)
    from PIL import Image

    array = np.asarray(img)
    planes = _pad_array(
        np.moveaxis(array, 2, 0) if array.ndim == 3 else array, left, top, right, bottom, padding_mode
    )
    return Image.fromarray(np.ascontiguousarray(np.moveaxis(planes, 0, 2) if array.ndim == 3 else planes))


def _pad_array(array: np.ndarray, left: int, top: int, right: int, bottom: int, mode: Any) -> np.ndarray:
    return np.pad(array, [(0, 0)] * (array.ndim - 2) + [(top, bottom), (left, right)], mode)


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    check("hflip", img)
    return img.flip(-1) if isinstance(img, Tensor) else img.transpose(0)  # PIL's FLIP_LEFT_RIGHT


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    check("vflip", img)
    return img.flip(-2) if isinstance(img, Tensor) else img.transpose(1)  # PIL's FLIP_TOP_BOTTOM


def resize(
    img: Any,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """The image in `size`, (height, width); with one number the shorter side gets it, and the other follows.

    max_size: the longer side gets at most this. antialias: of tensors; PIL images always are, but for NEAREST.
    """
    _, h, w = get_dimensions(img)
    height, width = _resized(h, w, size, max_size)
    if (height, width) == (h, w):
        return img
    if not isinstance(img, Tensor):
        from PIL import Image

        name = "NEAREST" if interpolation is InterpolationMode.NEAREST_EXACT else interpolation.name
        return img.resize((width, height), Image.Resampling[name])
    mode = interpolation.value
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(
            f"resize: tensors cannot be resized by {interpolation}; turn them into PIL images first"
        )
    smooth = mode in ("bilinear", "bicubic")
    planes = img.reshape(-1, 1, h, w)
    floats = planes if planes.is_floating_point() or not smooth else planes.to(dtypes.float32)
    options = {"align_corners": False, "antialias": bool(antialias)} if smooth else {}
    out = interpolate(floats, size=[height, width], mode=mode, **options)
    if out.dtype != img.dtype:
        if mode == "bicubic" and img.dtype == dtypes.uint8:
            out = out.clamp(0, 255)
        out = out.round().to(img.dtype)
    return out.reshape(*img.shape[:-2], height, width)


def _resized(h: int, w: int, size: int | Sequence[int], max_size: int | None) -> tuple[int, int]:
    sides = [size] if isinstance(size, int) else list(size)
    if len(sides) == 2:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge"
            )
        return sides[0], sides[1]
    if len(sides) != 1:
        raise ValueError(
            f"Size must be an int or a 1 or 2 element tuple/list, not a {len(sides)} element tuple/list"
        )
    short, long = min(h, w), max(h, w)
    new_short, new_long = sides[0], int(sides[0] * long / short)
    if max_size is not None:
        if max_size <= sides[0]:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size = {sides[0]}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if h <= w else (new_long, new_short)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A part of the image, in `size`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) of a size that may be the side of a square."""
    sides = [size] if isinstance(size, int) else list(size)
    return sides[0], sides[-1]


def erase(
    img: Tensor, top: int, left: int, height: int, width: int, value: Tensor, inplace: bool = False
) -> Tensor:
    """A rectangle of a tensor (…, C, H, W) filled with `value`."""
    if not isinstance(img, Tensor):
        raise TypeError(f"erase: img should be Tensor Image. Got {type(img)}; put ToTensor before it")
    out = img if inplace else img.clone()
    out[..., top : top + height, left : left + width] = value
    return out


def gaussian_blur(img: Any, kernel_size: int | Sequence[int], sigma: Any = None) -> Any:
    """A bell curve of `kernel_size`, (width, height) or one odd number, with deviations `sigma`, moved over the image.

    sigma: by default 0.3 * ((kernel_size - 1) / 2 - 1) + 0.8. The image is reflected at its sides.
    """
    check("gaussian_blur", img)
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if any(side <= 0 or side % 2 == 0 for side in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    if sigma is None:
        sigma = [side * 0.15 + 0.35 for side in sizes]
    widths = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(s) for s in sigma]
    if min(widths) <= 0.0:
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    if not isinstance(img, Tensor):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), sizes, widths))
    floats = img if img.is_floating_point() else img.to(dtypes.float32)
    across, down = (_bell(side, width, floats) for side, width in zip(sizes, widths, strict=True))
    planes = floats.reshape(-1, 1, *floats.shape[-2:])
    x, y = sizes[0] // 2, sizes[1] // 2
    planes = F.pad(planes, [x, x, y, y], mode="reflect")
    out = conv2d(planes, down.reshape(-1, 1).matmul(across.reshape(1, -1)).reshape(1, 1, sizes[1], sizes[0]))
    out = out.reshape(img.shape)
    return out if img.is_floating_point() else out.round().to(img.dtype)


def _bell(side: int, width: float, like: Tensor) -> Tensor:
    """`side` weights of a normal density with deviation `width`, that sum to 1."""
    place = np.arange(side) - (side - 1) * 0.5
    weights = np.exp(-0.5 * (place / width) ** 2)
    return wrap((weights / weights.sum()).astype(like.dtype.numpy)).to(like.device)
