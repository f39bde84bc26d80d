"""Transforms: on tensors as on PIL images, and with the random numbers of PyTorch."""

import math
import pickle

import numpy as np
import pytest

import ddpgrad
from ddpgrad import transforms as T
from ddpgrad.random import fork_rng
from ddpgrad.transforms import functional as F

Image = pytest.importorskip("PIL.Image")

PIXELS = (np.arange(13 * 17 * 3) * 7 % 256).astype(np.uint8).reshape(13, 17, 3)


def picture():
    return Image.fromarray(PIXELS)


def tensor(array=PIXELS):
    return ddpgrad.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


def pixels(image) -> np.ndarray:
    """(H, W, C), of either kind of image."""
    if isinstance(image, ddpgrad.Tensor):
        return image.numpy().transpose(1, 2, 0)
    array = np.asarray(image)
    return array if array.ndim == 3 else array[:, :, None]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("L", np.float32), ("RGB", np.float32), ("RGBA", np.float32), ("1", np.float32), ("I", np.int32),
     ("F", np.float32), ("I;16", np.uint16)],
)  # fmt: skip
def test_pictures_become_tensors(mode, expected):
    gray = Image.fromarray(PIXELS[:, :, 0])
    if mode == "I;16":
        source = Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 200)
    else:
        source = (picture() if mode.startswith("RGB") else gray).convert(mode)
    found = T.ToTensor()(source)
    raw = T.PILToTensor()(source)
    array = np.asarray(source).reshape(13, 17, -1).transpose(2, 0, 1)
    assert found.shape == raw.shape == array.shape
    if mode in ("L", "RGB", "RGBA"):
        np.testing.assert_array_equal(found.numpy(), array.astype(np.float32) / np.float32(255))
        np.testing.assert_array_equal(raw.numpy(), array)
        assert raw.dtype == ddpgrad.uint8
    elif mode == "1":
        np.testing.assert_array_equal(found.numpy(), array.astype(np.float32))
    else:
        np.testing.assert_array_equal(found.numpy(), array)


def test_arrays_become_tensors():
    np.testing.assert_array_equal(T.ToTensor()(PIXELS).numpy(), PIXELS.transpose(2, 0, 1) / np.float32(255))
    assert T.ToTensor()(PIXELS[:, :, 0].astype(np.float64)).dtype == ddpgrad.float64
    ddpgrad.set_default_dtype(ddpgrad.float64)
    try:
        np.testing.assert_array_equal(T.ToTensor()(PIXELS).numpy(), PIXELS.transpose(2, 0, 1) / 255)
    finally:
        ddpgrad.set_default_dtype(ddpgrad.float32)
    with pytest.raises(ValueError, match="2/3 dimensional"):
        T.ToTensor()(np.zeros(3))
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        T.ToTensor()([1])
    back = T.ToPILImage()(T.ToTensor()(picture()))
    np.testing.assert_array_equal(np.asarray(back), PIXELS)


# What happens to the pixels, in NumPy.
SAME_FOR_BOTH = {
    "hflip": (F.hflip, lambda a: a[:, ::-1]),
    "vflip": (F.vflip, lambda a: a[::-1]),
    "crop inside": (lambda i: F.crop(i, 2, 3, 5, 4), lambda a: a[2:7, 3:7]),
    "crop outside": (
        lambda i: F.crop(i, -2, 10, 9, 20),
        lambda a: np.pad(a, [(2, 0), (0, 13), (0, 0)])[0:9, 10:30],
    ),
    "center crop": (T.CenterCrop((5, 6)), lambda a: a[4:9, 6:12]),
    "center crop of odd": (T.CenterCrop(4), lambda a: a[4:8, 6:10]),
    "center crop larger": (T.CenterCrop((16, 20)), lambda a: np.pad(a, [(1, 2), (1, 2), (0, 0)])),
    "pad": (T.Pad([1, 2, 3, 4]), lambda a: np.pad(a, [(2, 4), (1, 3), (0, 0)])),
    "pad two": (T.Pad([1, 2], fill=7), lambda a: np.pad(a, [(2, 2), (1, 1), (0, 0)], constant_values=7)),
    "pad reflect": (
        T.Pad(3, padding_mode="reflect"),
        lambda a: np.pad(a, [(3, 3), (3, 3), (0, 0)], "reflect"),
    ),
}


@pytest.mark.parametrize("name", SAME_FOR_BOTH)
@pytest.mark.parametrize("make", [picture, tensor])
def test_parts_and_margins(name, make):
    transform, expected = SAME_FOR_BOTH[name]
    if name == "pad two" and make is picture:
        transform = T.Pad([1, 2], fill=(7, 7, 7))
    np.testing.assert_array_equal(pixels(transform(make())), expected(PIXELS))


@pytest.mark.parametrize("size", [8, (6, 9), (26, 34)])
@pytest.mark.parametrize("mode", [T.InterpolationMode.BILINEAR, T.InterpolationMode.BICUBIC])
def test_resizing_tensors_is_resizing_pictures(size, mode):
    smooth = Image.fromarray(
        np.stack([np.add.outer(np.arange(13) * 9, np.arange(17) * 5) + c * 20 for c in range(3)], -1).astype(
            np.uint8
        )
    )
    resize = T.Resize(size, mode)
    ours, theirs = resize(T.PILToTensor()(smooth)), resize(smooth)
    assert ours.dtype == ddpgrad.uint8
    assert np.abs(pixels(ours).astype(int) - pixels(theirs)).max() <= 1
    floats = resize(T.ToTensor()(smooth))
    assert np.abs(pixels(floats).clip(0, 1) * 255 - pixels(theirs)).max() <= 1.01


@pytest.mark.parametrize(
    ("size", "max_size", "expected"),
    [(26, None, (26, 34)), (8, None, (8, 10)), ([5], None, (5, 6)), (8, 9, (7, 9)), ((3, 4), None, (3, 4))],
)
def test_the_size_of_one_side_decides_the_other(size, max_size, expected):
    assert T.Resize(size, max_size=max_size)(tensor()).shape[1:] == expected
    turned = picture().transpose(Image.Transpose.TRANSPOSE)
    if not isinstance(size, tuple):
        assert T.Resize(size, max_size=max_size)(turned).size == expected


def test_pixels():
    found = T.Compose([T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))])(picture())
    expected = (PIXELS / 255 - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]
    np.testing.assert_allclose(pixels(found), expected, rtol=1e-5, atol=1e-5)
    gray = T.Grayscale(3)(tensor())
    np.testing.assert_array_equal(gray.numpy()[0], np.floor(PIXELS @ np.float32([0.2989, 0.587, 0.114])))
    assert np.abs(pixels(T.Grayscale()(picture())).astype(int) - pixels(gray)[:, :, :1]).max() <= 1
    assert T.Lambda(lambda image: image.size)(picture()) == (17, 13)
    for bad, error in (
        (lambda: T.Normalize([0], [0])(ddpgrad.rand(1, 2, 2)), ValueError),
        (lambda: T.Normalize([0], [1])(tensor()), TypeError),
        (lambda: T.RandomCrop(14)(picture()), ValueError),
        (lambda: F.hflip("image"), TypeError),
        (lambda: T.Lambda(3), TypeError),
    ):
        with pytest.raises(error):
            bad()


@pytest.mark.parametrize(
    "change",
    [
        lambda i: F.adjust_brightness(i, 1.6),
        lambda i: F.adjust_contrast(i, 0.4),
        lambda i: F.adjust_saturation(i, 1.7),
        lambda i: F.adjust_hue(i, 0.3),
        lambda i: F.adjust_hue(i, -0.5),
        lambda i: F.rotate(i, 90, expand=True),
        lambda i: F.rotate(i, 37, T.InterpolationMode.BILINEAR, expand=True, fill=[9, 80, 200]),
        lambda i: F.rotate(i, -20, center=(8.5, 6.5), fill=3),
    ],
)
def test_colors_and_rotation_of_tensors_are_those_of_pictures(change):
    """Pillow rounds more coarsely, on its way through bytes of hue, and along edges of a rotated picture."""
    smooth = np.stack([np.add.outer(np.arange(13) * 9, np.arange(17) * 5) + c * 30 for c in range(3)], -1)
    theirs = change(Image.fromarray(smooth.astype(np.uint8)))
    ours = change(tensor(smooth.astype(np.uint8)))
    assert ours.dtype == ddpgrad.uint8
    difference = np.abs(pixels(ours).astype(int) - pixels(theirs).astype(int))
    assert (difference > 6).mean() < 0.1
    floats = change(tensor(smooth.astype(np.float32) / np.float32(255)))
    if floats.shape == ours.shape and floats.amax() <= 1:
        assert np.abs(pixels(floats) * 255 - pixels(ours)).max() <= 1.6


def test_a_rotation_by_a_quarter_is_exact_and_a_blur_keeps_the_mean():
    np.testing.assert_array_equal(pixels(F.rotate(tensor(), 90, expand=True)), np.rot90(PIXELS))
    blurred = F.gaussian_blur(ddpgrad.ones(3, 5, 6), (5, 3), [0.7, 2.0])
    np.testing.assert_allclose(blurred.numpy(), 1.0, rtol=1e-6)
    point = ddpgrad.zeros(1, 5, 7)
    point[0, 2, 3] = 1.0
    weights = np.exp(-0.5 * (np.arange(-1, 2) / 0.8) ** 2)
    expected = np.outer([0, 0, 1, 0, 0], [0, 0, *weights / weights.sum(), 0, 0])
    np.testing.assert_allclose(F.gaussian_blur(point, (3, 1), 0.8).numpy()[0], expected, rtol=1e-5)
    assert np.asarray(T.GaussianBlur(3)(picture())).shape == PIXELS.shape
    assert np.asarray(T.RandomRotation(20)(picture())).shape == PIXELS.shape


def test_random_colors_and_erasing():
    ddpgrad.manual_seed(3)
    assert T.ColorJitter()(picture()).tobytes() == PIXELS.tobytes()
    bright = T.ColorJitter(brightness=(2.0, 2.0))(tensor())
    np.testing.assert_array_equal(pixels(bright), np.minimum(PIXELS.astype(int) * 2, 255))
    grays = {len(np.unique(T.RandomGrayscale(0.5)(tensor()).numpy()[:, 3, 4])) for _ in range(20)}
    assert grays == {1, 3}
    assert T.RandomErasing(0.0)(tensor()).equal(tensor())
    for value, inside in ((7, [7, 7, 7]), ([1, 2, 3], [1, 2, 3])):
        erased = pixels(T.RandomErasing(1.0, value=value)(tensor()))
        changed = (erased != PIXELS).any(-1)
        rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
        box = erased[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert (box == inside).all() and 0.01 < box.size / erased.size < 0.4
    for bad in (
        lambda: T.ColorJitter(hue=0.6),
        lambda: T.ColorJitter(brightness=-1),
        lambda: T.GaussianBlur(4),
        lambda: T.RandomErasing(value="noise"),
        lambda: T.RandomRotation(-3),
        lambda: F.adjust_hue(picture(), 0.7),
        lambda: F.rotate(tensor(), 5, fill=[1, 2]),
    ):
        with pytest.raises(ValueError, match=r"hue|brightness|odd|random|positive|fill"):
            bad()


@pytest.mark.parametrize(
    ("source", "dtype", "expected"),
    [
        (np.uint8([0, 128, 255]), "float32", [0, 128 / 255, 1]),
        (np.float32([0, 0.5, 1]), "uint8", [0, 127, 255]),
        (np.uint8([0, 255]), "int32", [0, 255 << 23]),
        (np.int32([0, 255 << 23]), "uint8", [0, 255]),
        (np.float32([0.25]), "float64", [0.25]),
    ],
)
def test_types_keep_the_range_of_brightness(source, dtype, expected):
    found = T.ConvertImageDtype(getattr(ddpgrad, dtype))(ddpgrad.from_numpy(source))
    assert found.dtype == getattr(ddpgrad, dtype)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    with pytest.raises(RuntimeError, match="safely"):
        T.ConvertImageDtype(ddpgrad.int32)(ddpgrad.ones(1))


@pytest.mark.torch
def test_random_numbers_are_pytorchs():
    """The draws that torchvision documents: a float for a flip; top, then left, for a crop."""
    torch = pytest.importorskip("torch")
    crop, flip, part = T.RandomCrop(8, padding=2), T.RandomHorizontalFlip(), T.RandomResizedCrop(6)
    for seed in range(5):
        torch.manual_seed(seed)
        top = torch.randint(0, 10, (1,)).item()
        left = torch.randint(0, 14, (1,)).item()
        flipped = torch.rand(1).item() < 0.5
        expected = np.pad(PIXELS, [(2, 2), (2, 2), (0, 0)])[top : top + 8, left : left + 8]
        expected = expected[:, ::-1] if flipped else expected
        for _ in range(10):
            area = 13 * 17 * torch.empty(1).uniform_(0.08, 1.0).item()
            ratios = torch.log(torch.tensor((3 / 4, 4 / 3)))
            aspect = torch.exp(torch.empty(1).uniform_(ratios[0].item(), ratios[1].item())).item()
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= 17 and 0 < h <= 13:
                box = (
                    torch.randint(0, 13 - h + 1, (1,)).item(),
                    torch.randint(0, 17 - w + 1, (1,)).item(),
                    h,
                    w,
                )
                break
        with fork_rng():
            ddpgrad.manual_seed(seed)
            np.testing.assert_array_equal(pixels(flip(crop(picture()))), expected)
            assert part.get_params(picture(), part.scale, part.ratio) == box
            assert part(tensor()).shape == (3, 6, 6)


def test_transforms_can_be_sent_and_print_themselves():
    steps = T.Compose(
        [T.RandomCrop(4, padding=1), T.RandomVerticalFlip(0.2), T.ToTensor(), T.Normalize([0], [1])]
    )
    again = pickle.loads(pickle.dumps(steps))
    assert repr(again) == repr(steps)
    assert "RandomVerticalFlip(p=0.2)" in repr(steps) and "Normalize(mean=[0], std=[1])" in repr(steps)
