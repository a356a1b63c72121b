"""Mistakes in datasets: of one's own, and of those that come by a library, each in one line."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from aces import data, params
from aces.data import Part, Splits, torchvision_sets
from aces.data.checks import check_splits
from aces.data.collect import collect
from aces.errors import InputError
from aces.vision import torchvision

pytestmark = pytest.mark.usefixtures("datasets")


def part(*shape: int, dtype=np.uint8, label=None) -> Part:
    """Images of this shape, half of them of each of two classes."""
    label = np.arange(shape[0]) % 2 if label is None else label
    return Part(np.zeros(shape, dtype), label)


GOOD = part(4, 8, 8, 3)
FILES = Part([f"{number}.png" for number in range(4)], GOOD.label)
NOTHING = Part([], np.empty(0, int))
SMALL = params.Dataset(name="own:load", stride=1)


@pytest.mark.parametrize(
    "train, test, message",
    [
        (GOOD, part(4, 8, 8, 3, label=np.arange(3) % 2), "4 test images, and labels of shape .3,."),
        (part(4, 8, 8, 3, label=np.zeros((4, 1), int)), GOOD, "training .* labels of shape .4, 1."),
        (part(4, 8, 8, 3, label=np.zeros(4)), GOOD, "4 training images, .* type float64: expected"),
        (
            GOOD,
            part(4, 8, 8, 3, label=list("abab")),
            "type <U1: expected one whole number for each",
        ),
        (GOOD, part(4, 8, 8, 3, label=[0, 1, 0, -1]), "test labels from -1 to 1: expected 0 to 1"),
        (part(4, 8, 8), GOOD, "training images are uint8 of shape .4, 8, 8.: expected uint8 of sh"),
        (part(4, 8, 8, 4), GOOD, "training images are uint8 of shape .4, 8, 8, 4.: expected uint8"),
        (part(4, 0, 8, 3), GOOD, "training images are uint8 of shape .4, 0, 8, 3.: expected uint8"),
        (GOOD, part(4, 8, 8, 3, dtype=float), "test images are float64 of shape .4, 8, 8, 3.: exp"),
        (GOOD, part(4, 8, 9, 3), "training images of shape .8, 8, 3., test images of shape .8, 9"),
        (FILES, GOOD, "one of training and test images are files, the others an array: expected"),
        (GOOD, FILES, "one of training and test images are files, the others an array: expected"),
        (GOOD, NOTHING, "has no test images: nothing could be evaluated"),
    ],
)
def test_what_no_dataset_may_be(train, test, message):
    with pytest.raises(InputError, match=f"dataset own:load.*{message}") as caught:
        check_splits(Splits(train, test, ["a", "b"]), SMALL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("train, test", [(GOOD, GOOD), (FILES, FILES), (NOTHING, GOOD)])
def test_what_a_dataset_may_be(train, test):
    check_splits(Splits(train, test, ["a", "b"]), SMALL)


def test_images_that_come_one_by_one_have_one_size_or_get_it(tmp_path):
    images = [Image.new("L", (8, 8)), Image.new("RGB", (8, 9), "red")]

    def get(number: int) -> tuple[Image.Image, int]:
        return images[number], number

    with pytest.raises(
        InputError, match="dataset.size is not set, and the photos of own:load have"
    ):
        collect(2, get, SMALL, folder=tmp_path, title="photos")
    found = collect(2, get, SMALL.replace(size=6), folder=tmp_path, title="photos")
    assert found.image.shape == (2, 6, 6, 3) and found.label.tolist() == [0, 1]
    assert found.image[1, 0, 0].tolist() == [255, 0, 0]


# ---------------------------------------------------------------- torchvision


class Fake:
    """A dataset of torchvision that gives four grey images, one by one."""

    asked: list[dict]
    image: object = Image.new("L", (5, 4), 7)
    label: object = 1

    def __init__(self, root: str, train: bool = True, download: bool = False, fold: int = 0):
        self.asked.append({"train": train, "download": download, "fold": fold})

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int):
        return self.image, self.label if number else 0


@pytest.fixture
def fake(monkeypatch):
    """A function that lets torchvision have this dataset under the name Fake."""

    def install(base: type = Fake, **members) -> type:
        made = type("Fake", (base,), {"asked": []} | members)
        monkeypatch.setattr(torchvision.datasets, "Fake", made, raising=False)
        return made

    return install


def load(**settings) -> Splits:
    return torchvision_sets.load(params.Dataset(name="torchvision/Fake", **settings))


class WithoutDownload(Fake):
    def __init__(self, root: str, train: bool = True):
        self.asked.append({"train": train})
        raise RuntimeError("no files here")


def fails(error: Exception):
    """The beginning of a dataset that raises this."""

    def begin(self, root: str, train: bool = True, download: bool = False, fold: int = 0):
        self.asked.append({"download": download})
        raise error

    return {"__init__": begin}


@pytest.mark.parametrize(
    "base, members, settings, message, downloads",
    [
        (WithoutDownload, {}, {}, "is not in .* and cannot be had .no files here.: connect", False),
        (Fake, fails(RuntimeError("none")), {}, "is not in .* and cannot be had .none.: con", True),
        (
            Fake,
            fails(FileNotFoundError("none")),
            {},
            "is not in .* be had .none.: connect to",
            True,
        ),
        (
            Fake,
            fails(PermissionError("no")),
            {},
            "cannot be read from .* .no.: make its fil",
            False,
        ),
        (Fake, fails(AssertionError()), {}, "cannot be read from .* .AssertionError.: make", False),
        (
            Fake,
            fails(ImportError("no lmdb")),
            {},
            "needs a library .* .no lmdb.: install it",
            False,
        ),
        (
            Fake,
            fails(ValueError("9")),
            {},
            "cannot be read from .* .9.: make its files read",
            False,
        ),
        (
            Fake,
            fails(ValueError("9")),
            {"fold": 9},
            "settings={'fold': 9} do not suit .*: 9",
            False,
        ),
        (Fake, {}, {"folds": 9}, "dataset.settings={'folds': 9} do not suit .*: .*'folds'", False),
        (Fake, {"label": (1, 2)}, {}, "is not for classification: its items are not images", False),
        (
            Fake,
            {"image": np.zeros(3)},
            {},
            "is not for classification: its items are not im",
            False,
        ),
    ],
)
def test_what_a_dataset_of_torchvision_does_not_give(
    fake, base, members, settings, message, downloads
):
    made = fake(base, **members)
    with pytest.raises(InputError, match=message) as caught:
        load(settings=settings)
    assert "\n" not in str(caught.value) and "torchvision/Fake" in str(caught.value)
    assert any(asked.get("download") for asked in made.asked) == downloads


def test_what_is_no_class_is_no_dataset_of_torchvision():
    for name in ("folder", "wrap_dataset_for_transforms_v2", "Nothing"):
        with pytest.raises(InputError, match=f"'torchvision/{name}' is no dataset of torchvision"):
            data.prepare(params.Dataset(name=f"torchvision/{name}"))


ARRAY = np.full((4, 4, 5), 7, np.uint8)
NAMES = ["a.png", "b.png", "c.png", "d.png"]


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"data": ARRAY},  # without labels
        {"targets": [0, 1, 1, 1]},  # without images
        {"data": [ARRAY[0], ARRAY[0][:2]] * 2, "targets": [0, 1, 1, 1]},  # of several sizes
        {"data": ARRAY / 255, "targets": [0, 1, 1, 1]},
        {"data": ARRAY, "targets": [0, 1]},  # of another kind than one for each image
        {"samples": [(name, (1, 2)) for name in NAMES]},
        {"samples": [(name, 1) for name in NAMES[:2]]},
        {"samples": [(ARRAY[0], 1)] * 4},
        {"_images": NAMES},
    ],
)
def test_where_torchvision_lists_neither_array_nor_files_images_come_one_by_one(fake, members):
    fake(**members)
    train = load().train
    assert train.image.shape == (4, 4, 5, 1) and (train.image == 7).all()
    assert train.label.tolist() == [0, 1, 1, 1]


def test_an_array_or_files_are_taken_as_they_are(fake):
    fake(data=ARRAY + 1, targets=[1, 1, 1, 0])
    assert (load().train.image == 8).all() and load().train.label.tolist() == [1, 1, 1, 0]
    fake(samples=[(name, 1) for name in NAMES])
    assert [path.name for path in load().train.image] == NAMES


# ---------------------------------------------------------------- Hugging Face


@pytest.mark.parametrize(
    "found, settings, message",
    [
        ({"all": 1, "test": 1}, {}, "hf/animals has no split train or training .it has all, test."),
        ({"train": 1}, {"train": "all"}, "has no split 'all': expected one of train$"),
        ({"train": 1}, {"test": "dev"}, "has no split 'dev': expected one of train$"),
        (OSError("no route\nto host"), {}, "animals cannot be loaded .no route.: check its name"),
        (None, {}, "'hf/animals' needs the library `datasets`: `pip install datasets`"),
        ({"train": 1}, {"seeds": 1}, "dataset.settings.seeds=1 is unknown to hf/animals: expected"),
    ],
)
def test_what_the_library_of_hugging_face_does_not_give(monkeypatch, found, settings, message):
    def load_dataset(source, config, cache_dir):
        if isinstance(found, Exception):
            raise found
        return found

    library = None if found is None else SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(InputError, match=message) as caught:
        data.prepare(params.Dataset(name="hf/animals", settings=settings))
    assert "\n" not in str(caught.value)
