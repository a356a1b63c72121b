"""ImageNet: order, labels, crops, and training images that stay files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aces import data, params
from aces.data import TrainSet
from aces.errors import InputError

pytestmark = pytest.mark.usefixtures("datasets")


def both(prepared: data.Prepared) -> tuple[data.EvalSet, data.TrainSet]:
    return prepared.evaluation, prepared.training


@pytest.fixture(scope="module")
def imagenet_folder(tmp_path_factory) -> Path:
    """1000 classes; two small validation images and one training image each."""
    root = tmp_path_factory.mktemp("ilsvrc")
    rng = np.random.default_rng(0)
    for number in range(1000):
        for part, names in (("val", ("b.JPEG", "a.JPEG")), ("train", ("t.JPEG",))):
            folder = root / part / f"n{10_000_000 - number:08d}"
            folder.mkdir(parents=True)
            for name in names:
                Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(
                    folder / name
                )
    (root / "val" / "n09999999" / "notes.txt").write_text("not an image")
    return root


def test_imagenet_is_every_kth_image_of_the_folder_in_order(imagenet_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("ACES_IMAGENET", str(imagenet_folder))
    evaluation, training = both(data.prepare(params.Dataset(name="imagenet", stride=301)))
    from aces.vision import torchvision

    transforms = torchvision.transforms
    reference = torchvision.datasets.ImageFolder(
        imagenet_folder / "val",
        transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)]),
    )  # as in locuslab/smoothing, code/datasets.py
    assert evaluation.index.tolist() == list(range(0, 2000, 301)) and len(reference) == 2000
    for place, index in enumerate(evaluation.index):
        image, label = reference[int(index)]
        assert (
            np.array_equal(evaluation.image[place], np.asarray(image))
            and evaluation.label[place] == label
        )
    assert evaluation.image.shape == (7, 224, 224, 3)
    assert len(training.image) == 1000 and training.label.tolist() == list(range(1000))
    assert training.image[0] == imagenet_folder.resolve() / "train" / "n09999001" / "t.JPEG"


def test_imagenet_training_paths_follow_the_folder(imagenet_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("ACES_IMAGENET", str(imagenet_folder))
    root = imagenet_folder.resolve()
    paths = [root / "train" / "n1" / "ü.JPEG", root / "train" / "n2" / "a.JPEG"]
    training = TrainSet(
        image=paths,
        label=np.array([0, 1]),
        classes=["a", "b"],
        mean=(0.5, 0.5, 0.5),
        std=(0.2, 0.2, 0.2),
        root="$ACES_IMAGENET",
    )
    data.write_train(tmp_path / "train.npz", training)
    assert data.read_train(tmp_path / "train.npz").image == training.image
    moved = tmp_path / "moved"
    moved.mkdir()
    monkeypatch.setenv("ACES_IMAGENET", str(moved))
    assert (
        data.read_train(tmp_path / "train.npz").image[0]
        == moved.resolve() / "train" / "n1" / "ü.JPEG"
    )


def test_imagenet_without_training_images_serves_published_networks(
    tmp_path, imagenet_folder, monkeypatch
):
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "val").symlink_to(imagenet_folder / "val")
    monkeypatch.setenv("ACES_IMAGENET", str(tmp_path / "half"))
    evaluation, training = both(data.prepare(params.Dataset(name="imagenet", stride=1000)))
    assert len(evaluation.label) == 2 and len(training.image) == 0
    data.write_train(tmp_path / "train.npz", training)
    with pytest.raises(InputError, match="has no training images"):
        data.read_train(tmp_path / "train.npz")


def test_imagenet_refusals(tmp_path, datasets, monkeypatch):
    with pytest.raises(
        InputError, match=f"ImageNet is not at {datasets / 'imagenet'}: set ACES_IMAGENET"
    ):
        data.prepare(params.Dataset(name="imagenet", stride=100))
    monkeypatch.setenv("ACES_IMAGENET", str(tmp_path))
    with pytest.raises(InputError, match="val does not exist"):
        data.prepare(params.Dataset(name="imagenet", stride=100))
    (tmp_path / "val" / "n01440764").mkdir(parents=True)
    with pytest.raises(InputError, match="has 1 class folders, expected 1000"):
        data.prepare(params.Dataset(name="imagenet", stride=100))
