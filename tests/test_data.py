"""Datasets: the sets that `prepare` gives, their files, and the digits."""

import subprocess
import sys

import numpy as np
import pytest

from aces import data, params
from aces.data import known
from aces.errors import InputError

pytestmark = pytest.mark.usefixtures("datasets")


def sets(prepared: data.Prepared) -> tuple[data.EvalSet, data.TrainSet]:
    return prepared.evaluation, prepared.training


# --- the files ---


def test_unknown_dataset_is_refused():
    with pytest.raises(InputError, match="dataset.name='cifar': .* did you mean cifar10"):
        data.prepare(params.Dataset(name="cifar"))
    with pytest.raises(InputError, match="data/mnist/eval.npz does not exist.*`dvc repro subsampl"):
        data.info("mnist")


def test_what_was_written_says_what_the_dataset_is(tmp_path, monkeypatch):
    """Even of a built-in dataset: its images may have been resized."""
    monkeypatch.chdir(tmp_path)
    prepared = data.prepare(params.Dataset(name="digits", stride=9, size=12))
    data.write_eval("data/digits/eval.npz", prepared.evaluation)
    assert data.info("digits") == prepared.evaluation.info == prepared.training.info
    assert data.info("digits").shape == (1, 12, 12)
    data.write_train("train.npz", prepared.training)
    assert data.read_info("train.npz") == prepared.training.info


def test_calibration_images_are_test_images_that_are_not_evaluated():
    def indices(stride: int, calibration: int) -> tuple[list[int], list[int]]:
        prepared = data.prepare(params.Dataset(name="digits", stride=stride), calibration)
        return prepared.evaluation.index.tolist(), prepared.calibration.index.tolist()

    whole = data.prepare(params.Dataset(name="digits", stride=1)).evaluation
    some = data.prepare(params.Dataset(name="digits", stride=20), 50).calibration
    np.testing.assert_array_equal(some.image, whole.image[some.index])
    np.testing.assert_array_equal(some.label, whole.label[some.index])
    evaluated, calibrated = indices(20, 50)
    assert evaluated == list(range(0, 360, 20)) and len(calibrated) == 50
    assert not set(evaluated) & set(calibrated)
    assert max(np.diff(calibrated)) <= 9  # 342 images are left, about every seventh is taken
    assert indices(2, 1000)[1] == list(range(1, 360, 2))  # all that are left
    assert indices(1, 100)[1] == []


@pytest.mark.parametrize("name", data.DATASETS)
def test_info_is_consistent(name):
    info = data.info(name)
    assert info.name == name and len(info.classes) == info.num_classes
    assert len(info.mean) == len(info.std) == info.shape[0]


def test_imagenet_classes_are_in_the_usual_order():
    classes = data.info("imagenet").classes
    # ILSVRC 2012, sorted by wnid
    assert (classes[0], classes[207], classes[999]) == (
        "tench",
        "golden retriever",
        "toilet tissue",
    )


@pytest.mark.parametrize(
    "name, path, title",
    [
        ("cifar10", None, "CIFAR-10"),
        ("folder", "/home/me/photos", "photos"),
        ("npz", "sets/birds.npz", "birds"),
        ("torchvision/GTSRB", None, "GTSRB"),
        ("hf/uoft-cs/cifar100", None, "uoft-cs/cifar100"),
        ("my.module:load", None, "my.module:load"),
    ],
)
def test_titles(name, path, title):
    assert known.title(params.Dataset(name=name, path=path)) == title


def test_to_tensor():
    image = np.zeros((2, 4, 5, 3), np.uint8)
    image[1, 2, 3] = (255, 51, 0)
    tensor = data.to_tensor(image)
    assert tensor.shape == (2, 3, 4, 5) and tensor.is_contiguous()
    assert tensor[1, :, 2, 3].tolist() == pytest.approx([1.0, 0.2, 0.0])
    assert tensor.sum().item() == pytest.approx(1.2)


def test_files_come_back_and_the_same_data_gives_the_same_bytes(tmp_path):
    evaluation, training = sets(data.prepare(params.Dataset(name="digits", stride=7)))
    for name in ("a", "b"):
        data.write_eval(tmp_path / name / "eval.npz", evaluation)
        data.write_train(tmp_path / name / "train.npz", training)
    for file in ("eval.npz", "train.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    again = data.read_eval(tmp_path / "a" / "eval.npz")
    for field in ("image", "label", "index"):
        assert np.array_equal(getattr(again, field), getattr(evaluation, field))
        assert getattr(again, field).dtype == getattr(evaluation, field).dtype
    assert again.classes == evaluation.classes
    assert np.array_equal(data.read_train(tmp_path / "a" / "train.npz").image, training.image)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["eval.npz", "train.npz"]


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist: run `dvc repro -f subsample`"):
        data.read_eval(tmp_path / "eval.npz")
    with pytest.raises(
        InputError, match="eval.npz does not exist: run `dvc repro subsample` first"
    ):
        data.read_info(tmp_path / "eval.npz")
    (tmp_path / "train.npz").write_bytes(b"PK\x03\x04 and no more")
    for read in (data.read_train, data.read_info):
        with pytest.raises(InputError, match="is not a dataset file"):
            read(tmp_path / "train.npz")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"classes": None}, "lacks classes"),
        ({"mean": None, "std": None}, "lacks mean, std"),
        ({"image": np.zeros((18, 8, 8, 1), np.float32)}, "its image is float32"),
        ({"image": np.zeros((18, 8, 8, 1), np.uint16)}, "its images are uint16"),
        ({"image": np.zeros((18, 8, 8), np.uint8)}, "its image is uint8 of shape .18, 8, 8."),
        ({"image": np.zeros((18, 0, 8, 1), np.uint8)}, "of shape .18, 0, 8, 1."),
        ({"image": np.zeros((18, 8, 8, 2), np.uint8)}, "images are uint8 of shape .18, 8, 8, 2."),
        ({"core_image": np.zeros((17, 8, 8, 1), np.uint8)}, "17 images for the core network"),
        ({"image": np.zeros((17, 8, 8, 1), np.uint8)}, "17 images and labels of shape .18,."),
        ({"label": np.full(18, 10)}, "labels are 10 to 10 for 10 classes"),
        ({"label": np.full(18, -1)}, "labels are -1 to -1"),
        ({"label": np.zeros(18)}, "its label is float64"),
        ({"label": np.int64(3)}, "its label is int64 of shape .."),
        ({"index": np.zeros(18, np.int64)}, "ascending position"),
        ({"index": np.arange(-1, 17)}, "ascending position"),
        ({"index": np.arange(17)}, "ascending position"),
        ({"std": np.zeros(1)}, "std .0.0,. for 1 channels"),
        ({"mean": np.full(3, 0.5)}, "for 1 channels"),
        ({"mean": np.full(1, np.nan)}, "mean .nan,. and std"),
        ({"std": np.full(1, np.inf)}, "std .inf,. for 1 channels"),
        ({"std": np.zeros(0)}, "for 1 channels"),
        ({"mean": np.full(1, 0.5j)}, "its mean is complex128"),
        ({"resize": np.array(-3)}, "resized to -3 pixels"),
        ({"resize": np.array([8, 8])}, "its resize is int64 of shape .2,."),
        ({"resize": np.array("8")}, "its resize is <U1"),
        ({"name": np.array(5)}, "its name is int64"),
        ({"classes": np.arange(10)}, "its classes is int64"),
        ({"more": np.arange(10)}, "nothing is known of its array 'more'"),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path, change, message):
    data.write_eval(
        tmp_path / "eval.npz", data.prepare(params.Dataset(name="digits", stride=20)).evaluation
    )
    with np.load(tmp_path / "eval.npz") as file:
        arrays = {**file, **change}
    np.savez(tmp_path / "eval.npz", **{name: it for name, it in arrays.items() if it is not None})
    with pytest.raises(InputError, match=message) as caught:
        data.read_eval(tmp_path / "eval.npz")
    assert "dvc repro -f subsample" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"mirror": np.zeros(2, np.int64)}, "its mirror is int64 of shape .2,."),
        ({"path": None}, "lacks path"),
        ({"path": np.arange(3)}, "its path is int64"),
        ({"path": np.array([b"a.png"])}, "1 images and labels of shape .3,."),
        ({"root": None}, "lacks root"),
        ({"file_shape": None}, "lacks file_shape"),
        ({"file_shape": np.array([3, 8])}, "images of shape .3, 8."),
        ({"file_shape": np.array([2, 8, 8])}, "images of shape .2, 8, 8."),
        ({"file_shape": np.array([3, 8, 10**9])}, "images of shape"),
        ({"file_shape": np.array([3.0, 8, 8])}, "its file_shape is float64"),
    ],
)
def test_lists_of_training_files_that_contradict_themselves_are_refused(tmp_path, change, message):
    files = [tmp_path / f"{number}.png" for number in range(3)]
    training = data.TrainSet(
        image=files, label=np.zeros(3, np.int64), classes=["a", "b"], root=str(tmp_path)
    )
    data.write_train(tmp_path / "train.npz", training)
    assert data.read_train(tmp_path / "train.npz").image == files
    with np.load(tmp_path / "train.npz") as file:
        arrays = {**file, **change}
    np.savez(tmp_path / "train.npz", **{name: it for name, it in arrays.items() if it is not None})
    with pytest.raises(InputError, match=message) as caught:
        data.read_train(tmp_path / "train.npz")
    assert "dvc repro -f subsample" in str(caught.value) and "\n" not in str(caught.value)


def test_a_description_is_checked_without_the_images(tmp_path):
    training = data.prepare(params.Dataset(name="digits", stride=20)).training
    data.write_train(tmp_path / "train.npz", training)
    assert data.read_info(tmp_path / "train.npz") == training.info
    with np.load(tmp_path / "train.npz") as file:
        arrays = {**file}
    for change in ({"std": np.array([np.nan])}, {"classes": np.arange(3)}, {"name": np.array(b"")}):
        np.savez(tmp_path / "train.npz", **arrays | change)
        with pytest.raises(InputError, match="contradicts itself"):
            data.read_info(tmp_path / "train.npz")


# --- the digits ---


def test_digits():
    evaluation, training = sets(data.prepare(params.Dataset(name="digits", stride=6)))
    assert evaluation.image.shape == (60, 8, 8, 1) and evaluation.image.dtype == np.uint8
    assert training.image.shape == (1437, 8, 8, 1)
    assert evaluation.index.tolist() == list(range(0, 360, 6))
    assert set(evaluation.label) == set(training.label) == set(range(10))
    whole = data.prepare(params.Dataset(name="digits", stride=1)).evaluation
    assert np.array_equal(whole.image[::6], evaluation.image) and np.array_equal(
        whole.label[::6], evaluation.label
    )
    from sklearn.datasets import load_digits

    original = load_digits().images
    together = np.concatenate([whole.image, training.image])[..., 0]
    each_once = sorted(map(bytes, np.rint(original * 255 / 16).astype(np.uint8)))
    assert sorted(map(bytes, together)) == each_once
    info = data.info("digits")
    assert (together.mean() / 255, together.std() / 255) == pytest.approx(
        (*info.mean, *info.std), abs=1e-3
    )


@pytest.mark.slow
def test_data_stays_light():
    """The report reads evaluation images; it needs neither torch nor torchvision for that."""
    heavy = "('torch', 'torchvision', 'sklearn', 'datasets')"
    code = f"import sys, aces.data; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
