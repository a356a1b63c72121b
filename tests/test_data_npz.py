"""Datasets in npz files: what is found, and every mistake in one line."""

from pathlib import Path

import numpy as np
import pytest

from aces import data, params
from aces.data.reading import at_size, fit_array
from aces.errors import InputError


def prepare(path: Path, **settings) -> data.Prepared:
    settings = {"stride": 1, "size": 32} | settings
    return data.prepare(params.Dataset(name="npz", path=str(path), **settings))


def arrays(count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (count, 6, 7, 3), dtype=np.uint8)
    return {"image": image, "label": np.arange(count) % 3}


@pytest.mark.parametrize("form", ["folder", "file", "plural"])
def test_npz_files_for_training_and_test(tmp_path, form):
    train, test = arrays(30, seed=0), arrays(9, seed=1)
    path = tmp_path / "sets"
    if form == "folder":
        path.mkdir()
        np.savez(path / "train.npz", **train, classes=np.array(["a", "b", "c"]))
        np.savez(path / "test.npz", **test)
    else:
        path, plural = tmp_path / "both.npz", "s" if form == "plural" else ""
        both = {f"train_{name}{plural}": it for name, it in train.items()}
        both |= {
            f"test_{name}{plural}": it[:, None] if it.ndim == 1 else it for name, it in test.items()
        }
        np.savez_compressed(path, **both)
    prepared = prepare(path, size=None, stride=4)
    np.testing.assert_array_equal(prepared.evaluation.image, test["image"][::4])
    np.testing.assert_array_equal(prepared.evaluation.label, test["label"][::4])
    np.testing.assert_array_equal(prepared.training.image, train["image"])
    names = ["a", "b", "c"] if form == "folder" else ["0", "1", "2"]
    assert prepared.evaluation.classes == names


def test_one_npz_file_is_split_and_may_be_grey(tmp_path):
    grey = arrays(30, seed=0)
    np.savez(tmp_path / "all.npz", image=grey["image"][..., 0], label=grey["label"])
    prepared = prepare(tmp_path / "all.npz", size=10, split=0.2)
    assert prepared.evaluation.image.shape == (6, 10, 10, 1)
    assert prepared.training.image.shape == (24, 10, 10, 1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"image": None}, "lacks the array image .it has label."),
        ({"image": np.zeros((30, 4, 4, 3))}, "images are float64 of shape"),
        ({"image": np.zeros((30, 4, 4, 2), np.uint8)}, "expected uint8 of shape"),
        ({"label": np.zeros(29, int)}, "label is int64 of shape .29,., image has shape .30"),
        ({"label": np.zeros(30, int)}, "has 1 class"),
        (
            {"image": np.zeros((0, 6, 7, 3), np.uint8), "label": np.zeros(0, int)},
            "has no training images: expected arrays image",
        ),
        ({"label": np.zeros(30)}, "label is float64 of shape .30,."),
        ({"label": np.arange(30) % 3 - 1}, "labels from -1 to 1"),
    ],
)
def test_wrong_npz_files_are_refused(tmp_path, change, message):
    both = arrays(30, seed=0) | change
    np.savez(tmp_path / "all.npz", **{name: it for name, it in both.items() if it is not None})
    with pytest.raises(InputError, match=message) as caught:
        prepare(tmp_path / "all.npz", size=None)
    assert "\n" not in str(caught.value)
    (tmp_path / "all.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not an npz file") as caught:
        prepare(tmp_path / "all.npz")
    assert "\n" not in str(caught.value)


def test_a_core_network_trains_on_the_pixels_that_there_are(tmp_path):
    np.savez(tmp_path / "all.npz", **arrays(30, seed=0))  # 6 x 7 pixels
    for size, kept in ((None, False), (4, True)):  # kept: the array lost pixels to `size`
        dataset = params.Dataset(name="npz", path=str(tmp_path / "all.npz"), size=size, stride=1)
        training = data.prepare(dataset, core_size=6).training
        assert (training.core_image is not None) == kept
    expected = fit_array(arrays(30, seed=0)["image"], shape=(3, 6, 6), resize=None)
    assert set(map(bytes, at_size(training, 6).image)) <= set(map(bytes, expected))
