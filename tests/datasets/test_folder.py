"""Datasets of files in one folder for each class, and made-up images."""

from pathlib import Path

import numpy as np
import pytest

import ddpgrad
from ddpgrad.datasets import DatasetFolder, FakeData, ImageFolder
from ddpgrad.transforms import ToTensor

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    for number, place in enumerate(("cats/b.png", "cats/a.PNG", "cats/more/c.png", "dogs/d.png")):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 3), number, np.uint8)).save(path)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    return tmp_path


def test_images_have_the_class_of_their_folder(folder):
    data = ImageFolder(folder, ToTensor(), target_transform=lambda label: label + 10)
    assert data.classes == ["cats", "dogs"]
    assert data.class_to_idx == {"cats": 0, "dogs": 1}
    assert data.targets == [0, 0, 0, 1]
    found = [(image.shape, round(float(image.max()) * 255), label) for image, label in data]
    assert found == [((3, 2, 3), value, label) for value, label in ((1, 10), (0, 10), (2, 10), (3, 11))]


def test_a_loader_and_a_rule_of_which_files_count(folder):
    data = DatasetFolder(folder, lambda path: Path(path).read_text(), is_valid_file=lambda p: p.endswith("notes.txt"),
                         allow_empty=True)  # fmt: skip
    assert (len(data), data[0]) == (1, ("no image", 0))
    with pytest.raises(ValueError, match="either extensions or is_valid_file"):
        DatasetFolder(folder, open)


def test_folders_without_files_are_named(folder, tmp_path_factory):
    (folder / "birds").mkdir()
    with pytest.raises(FileNotFoundError, match=r"classes birds\. Supported extensions are: \.jpg"):
        ImageFolder(folder)
    assert len(ImageFolder(folder, allow_empty=True)) == 4
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        ImageFolder(tmp_path_factory.mktemp("empty"))


def test_made_up_images_depend_on_their_index_alone():
    data, shifted = (FakeData(4, (3, 5, 6), 7, ToTensor(), random_offset=o) for o in (0, 1))
    before = ddpgrad.random.get_rng_state()
    image, label = data[2]
    assert image.shape == (3, 5, 6)
    assert label in range(7)
    assert ddpgrad.equal(image, data[2][0])
    assert ddpgrad.equal(image, shifted[1][0])
    assert not ddpgrad.equal(image, data[3][0])
    assert ddpgrad.equal(before, ddpgrad.random.get_rng_state())
    with pytest.raises(IndexError):
        data[4]
