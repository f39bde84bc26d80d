"""Many images as one picture: where each image lies, and what the file holds."""

import numpy as np
import pytest

import ddpgrad
from ddpgrad.transforms.pictures import make_grid, save_image


def images(count, channels):
    return ddpgrad.rand(count, channels, 3, 4, generator=ddpgrad.Generator().manual_seed(1)) * 0.8 + 0.1


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_lies_in_its_place_with_padding_around(channels):
    batch = images(5, channels)
    grid = make_grid(batch, nrow=3, padding=2, pad_value=7.0)
    assert grid.shape == (3, 2 * 5 + 2, 3 * 6 + 2)
    for k, image in enumerate(batch):
        top, left = k // 3 * 5 + 2, k % 3 * 6 + 2
        found = grid[:, top : top + 3, left : left + 4]
        assert ddpgrad.equal(found, image.expand(3, -1, -1))
        found.fill_(7.0)
    assert bool((grid == 7.0).all())


def test_one_image_of_any_number_of_dimensions_is_its_own_picture():
    image = images(1, 1)
    for same in (image, image[0], image[0, 0], [image[0]]):
        assert ddpgrad.equal(make_grid(same), image[0].expand(3, -1, -1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0.0, 0.25], [0.75, 1.0]]),
        ({"scale_each": True}, [[0.0, 1.0], [0.0, 1.0]]),
        ({"value_range": (0, 2)}, [[0.0, 0.5], [1.0, 1.0]]),
    ],
)
def test_normalize_spreads_values(options, expected):
    batch = ddpgrad.tensor([[0.0, 1.0], [3.0, 4.0]]).reshape(2, 1, 1, 2)
    grid = make_grid(batch, nrow=1, padding=0, normalize=True, **options)
    np.testing.assert_allclose(grid[0].numpy(), expected, rtol=1e-6)


def test_a_picture_file_holds_rounded_bytes(tmp_path):
    image_file = pytest.importorskip("PIL.Image")
    batch = ddpgrad.linspace(-0.1, 1.1, 36).reshape(1, 3, 3, 4).requires_grad_()
    save_image(batch, tmp_path / "a.png")
    with image_file.open(tmp_path / "a.png") as file:
        found = np.asarray(file)
    expected = np.clip(np.floor(batch.detach().numpy()[0] * np.float32(255) + np.float32(0.5)), 0, 255)
    np.testing.assert_array_equal(found, expected.transpose(1, 2, 0).astype(np.uint8))


def test_what_is_no_image_is_refused():
    with pytest.raises(TypeError, match="tensor or list of tensors expected"):
        make_grid([1, 2])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="shape \\(1, 1, 1, 1, 1\\)"):
        make_grid(ddpgrad.zeros(1, 1, 1, 1, 1))
