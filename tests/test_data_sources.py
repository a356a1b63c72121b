"""Datasets of torchvision, of Hugging Face and of one's own: small files in their real formats."""

import gzip
import io
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aces import data, params
from aces.data import collect, torchvision_sets
from aces.errors import InputError

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def folders(datasets, tmp_path, monkeypatch) -> Path:
    """No package of the machine, and no network."""
    monkeypatch.setattr(torchvision_sets, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    datasets.mkdir()
    return datasets


def unreachable(*_, **__):
    raise OSError("no route to host")


def prepare(name: str, calibration: int = 0, **settings) -> data.Prepared:
    return data.prepare(params.Dataset(**{"name": name, "stride": 1} | settings), calibration)


def pixels(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


# --- torchvision ---


def idx(array: np.ndarray) -> bytes:
    """The format of MNIST: a magic number, the dimensions, the bytes."""
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, *, packed: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    arrays = {
        "train-images-idx3-ubyte": pixels(40, 28, 28),
        "train-labels-idx1-ubyte": np.arange(40) % 10,
        "t10k-images-idx3-ubyte": pixels(20, 28, 28),
        "t10k-labels-idx1-ubyte": np.arange(20) % 10,
    }
    for name, array in arrays.items():
        content = idx(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return arrays


@pytest.mark.parametrize(
    "place",
    ["datasets/torchvision/FashionMNIST/raw", "datasets/FashionMNIST", "debian/fashion-mnist"],
)
def test_fashion_mnist_from_local_files(tmp_path, place, monkeypatch):
    arrays = write_idx(tmp_path / place, packed="raw" not in place)
    prepared = prepare("torchvision/FashionMNIST", 5, stride=3)
    assert prepared.evaluation.shape == (1, 28, 28)
    np.testing.assert_array_equal(
        prepared.evaluation.image[..., 0], arrays["t10k-images-idx3-ubyte"][::3]
    )
    np.testing.assert_array_equal(prepared.training.label, np.arange(40) % 10)
    assert prepared.evaluation.classes[9] == "Ankle boot" and len(prepared.calibration.label) == 5
    assert prepared.training.mirror is None  # grey images are not mirrored then


def test_mnist_from_a_folder_of_the_users(tmp_path):
    arrays = write_idx(tmp_path / "files", packed=True)
    prepared = prepare("torchvision/MNIST", path=str(tmp_path / "files"))
    np.testing.assert_array_equal(
        prepared.training.image[..., 0], arrays["train-images-idx3-ubyte"]
    )
    assert prepared.training.mirror is False
    (tmp_path / "datasets" / "torchvision" / "MNIST" / "raw" / "train-labels-idx1-ubyte").unlink()
    (tmp_path / "files" / "train-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8b cut")
    with pytest.raises(InputError, match="train-labels-idx1-ubyte.gz cannot be unpacked"):
        prepare("torchvision/MNIST", path=str(tmp_path / "files"))


def test_cifar100_in_its_own_format(folders, monkeypatch):
    from aces.vision import torchvision

    folder = folders / "torchvision" / "cifar-100-python"
    folder.mkdir(parents=True)
    image = {"train": pixels(200, 3072), "test": pixels(100, 3072)}
    for part, array in image.items():
        label = (np.arange(len(array)) % 100).tolist()
        (folder / part).write_bytes(pickle.dumps({"data": array, "fine_labels": label}))
    (folder / "meta").write_bytes(
        pickle.dumps({"fine_label_names": [f"kind {number}" for number in range(100)]})
    )
    # The checksums are those of the real files.
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    prepared = prepare("torchvision/CIFAR100")
    assert prepared.evaluation.image.shape == (100, 32, 32, 3)
    expected = image["test"][7].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(prepared.evaluation.image[7], expected)
    assert prepared.evaluation.classes[42] == "kind 42"


def test_svhn_in_its_own_format(folders, monkeypatch):
    from scipy.io import savemat

    (folders / "torchvision").mkdir()
    image = {"train": pixels(32, 32, 3, 30), "test": pixels(32, 32, 3, 20)}
    for part, array in image.items():
        label = np.arange(array.shape[3])[:, None] % 10 + 1  # the digit 0 is called 10
        savemat(folders / "torchvision" / f"{part}_32x32.mat", {"X": array, "y": label})
    from aces.vision import torchvision

    monkeypatch.setattr(torchvision.datasets.SVHN, "_check_integrity", lambda self: True)
    prepared = prepare("torchvision/SVHN")
    np.testing.assert_array_equal(prepared.evaluation.image[3], image["test"][..., 3])
    assert prepared.evaluation.label[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert prepared.training.mirror is False and prepared.evaluation.classes[0] == "0"


def write_gtsrb(root: Path) -> None:
    """The German traffic signs: PPM files of several sizes, and a table of the test images."""
    base = root / "gtsrb"
    for number in range(3):
        folder = base / "GTSRB" / "Training" / f"{number:05d}"
        folder.mkdir(parents=True)
        for count in range(4):
            Image.fromarray(pixels(20 + count, 25, 3)).save(folder / f"{count:05d}_00000.ppm")
    images = base / "GTSRB" / "Final_Test" / "Images"
    images.mkdir(parents=True)
    rows = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for count in range(6):
        Image.fromarray(pixels(30, 20 + count, 3)).save(images / f"{count:05d}.ppm")
        rows.append(f"{count:05d}.ppm;1;1;1;1;1;1;{count % 3}")
    (base / "GT-final_test.csv").write_text("\n".join(rows))


def test_files_of_torchvision_go_through_the_one_loader(folders, monkeypatch, tmp_path):
    write_gtsrb(folders / "torchvision")
    with pytest.raises(InputError, match="dataset.size is not set, and the images have"):
        prepare("torchvision/GTSRB")
    prepared = prepare("torchvision/GTSRB", size=16)
    assert prepared.evaluation.image.shape == (6, 16, 16, 3)
    assert prepared.evaluation.label.tolist() == [0, 1, 2, 0, 1, 2]
    monkeypatch.setattr("aces.data.preparation.ARRAY_BYTES", 1000)
    training = prepare("torchvision/GTSRB", size=16).training
    assert len(training.image) == 12 and training.root == "$ACES_DATA/torchvision"
    data.write_train(tmp_path / "train.npz", training)
    assert data.read_train(tmp_path / "train.npz").image == training.image


def test_a_dataset_without_a_split_is_split(folders):
    for number in range(2):
        folder = folders / "torchvision" / "eurosat" / "2750" / f"kind {number}"
        folder.mkdir(parents=True)
        for count in range(10):
            Image.fromarray(pixels(64, 64, 3)).save(folder / f"{count}.jpg")
    prepared = prepare("torchvision/EuroSAT", split=0.3)
    assert len(prepared.evaluation.label) == 6 and len(prepared.training.label) == 14
    assert prepared.evaluation.classes == ["kind 0", "kind 1"]


def test_what_torchvision_cannot_give_is_one_line(folders):
    for name, settings, message in [
        (
            "torchvision/FashionMnist",
            {},
            "no dataset of torchvision: did you mean torchvision/Fash",
        ),
        ("torchvision/MNIST", {}, "cannot be had .*no route to host|cannot be had .*Error downloa"),
        ("torchvision/MNIST", {"settings": {"folds": 2}}, "do not suit torchvision/MNIST: .*folds"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            prepare(name, **settings)
        assert "\n" not in str(caught.value)


# --- Hugging Face ---


def png(*shape: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(*shape)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def parquet(tmp_path, monkeypatch) -> Path:
    """A folder as the hub has it: a parquet file for each split, with typed columns."""
    datasets = pytest.importorskip("datasets")
    # The libraries read the variable HF_HUB_OFFLINE when they are imported.
    for constant in ("datasets.config.HF_HUB_OFFLINE", "huggingface_hub.constants.HF_HUB_OFFLINE"):
        monkeypatch.setattr(constant, True)
    datasets.disable_progress_bars()
    features = datasets.Features(
        {"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog"])}
    )
    folder = tmp_path / "set" / "data"
    folder.mkdir(parents=True)
    for part, count in (("train", 12), ("test", 6)):
        rows = {
            "picture": [{"bytes": png(20, 24, 3), "path": None} for _ in range(count)],
            "kind": [number % 2 for number in range(count)],
        }
        made = datasets.Dataset.from_dict(rows, features=features)
        made.to_parquet(folder / f"{part}-00000-of-00001.parquet")
    return tmp_path / "set"


def test_a_dataset_of_hugging_face(parquet, monkeypatch, tmp_path):
    prepared = prepare("hf/animals", path=str(parquet), stride=2)
    assert prepared.evaluation.classes == ["cat", "dog"]
    assert prepared.evaluation.image.shape == (3, 20, 24, 3)
    assert prepared.evaluation.label.tolist() == [0, 0, 0]
    assert prepared.training.label.tolist() == [0, 1] * 6
    for module in ("collect", "preparation"):
        monkeypatch.setattr(f"aces.data.{module}.ARRAY_BYTES", 1000)
    files = prepare("hf/animals", path=str(parquet), stride=2)
    np.testing.assert_array_equal(files.evaluation.image, prepared.evaluation.image)
    assert files.training.mean == prepared.training.mean
    assert files.training.root == "$ACES_DATA/hf/animals"
    data.write_train(tmp_path / "train.npz", files.training)
    again = data.read_train(tmp_path / "train.npz").image
    assert again == files.training.image and all(path.is_file() for path in again)
    monkeypatch.setattr(collect, "write_json", None)  # found there the next time, not written
    assert prepare("hf/animals", path=str(parquet)).training.image == files.training.image


def test_what_hugging_face_cannot_give_is_one_line(parquet, monkeypatch):
    for settings, message in [
        ({"settings": {"train": "all"}}, "has no split 'all': expected one of train, test"),
        ({"settings": {"label": "name"}}, "which column is the label.*one of picture, kind"),
        ({"settings": {"seeds": 1}}, "dataset.settings.seeds=1 is unknown"),
        ({"path": None}, "animals cannot be loaded .*: check its name and the network"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            prepare("hf/animals", **{"path": str(parquet)} | settings)
        assert "\n" not in str(caught.value)


# --- a function of one's own ---


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write `own.py` in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(body: str) -> None:
        sys.modules.pop("own", None)
        (tmp_path / "own.py").write_text(
            "import numpy as np\nfrom aces.data import Part, Splits\n\n"
            f"def load(settings):\n{body}\n"
        )

    yield write
    sys.modules.pop("own", None)


def test_own_dataset_gets_its_settings(module):
    module(
        "    image = np.arange(settings['count'] * 48, dtype=np.uint8).reshape(-1, 4, 4, 3)\n"
        "    part = Part(image, np.arange(len(image)) % 2)\n"
        "    return Splits(part, part, ['even', 'odd'], mirror=False)"
    )
    prepared = prepare("own:load", settings={"count": 6})
    assert prepared.evaluation.image.shape == (6, 4, 4, 3)
    assert prepared.training.mirror is False and prepared.evaluation.name == "own:load"


@pytest.mark.parametrize(
    "body, message",
    [
        ("    return 1", "returned int: expected aces.data.Splits"),
        (
            "    part = Part(np.zeros((4, 4, 4, 3), np.float32), np.arange(4) % 2)\n"
            "    return Splits(part, part, ['a', 'b'])",
            "training images are float32",
        ),
        (
            "    part = Part(np.zeros((4, 4, 4, 3), np.uint8), np.arange(4))\n"
            "    return Splits(part, part, ['a', 'b'])",
            "training labels from 0 to 3: expected 0 to 1",
        ),
        (
            "    small, large = (np.zeros((4, side, 4, 3), np.uint8) for side in (4, 8))\n"
            "    label = np.arange(4) % 2\n"
            "    return Splits(Part(small, label), Part(large, label), ['a', 'b'])",
            "training images of shape .4, 4, 3., test images of shape .8, 4, 3.",
        ),
        (
            "    part = Part(np.zeros((4, 4, 4, 3), np.uint8), np.arange(4) % 2)\n"
            "    return Splits(part, Part([], np.empty(0, int)), ['a', 'b'])",
            "has no test images",
        ),
    ],
)
def test_what_a_function_must_not_return(module, body, message):
    module(body)
    with pytest.raises(InputError, match=message) as caught:
        prepare("own:load")
    assert "\n" not in str(caught.value)


def test_a_function_that_is_not_there(module):
    module("    pass")
    with pytest.raises(InputError, match="own has no function 'lod'"):
        prepare("own:lod")


def test_the_example(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    monkeypatch.syspath_prepend(".")
    settings = {"images": 60, "side": 24}
    prepared = prepare("examples.own_dataset:load", 5, settings=settings, stride=2)
    assert prepared.evaluation.classes == ["disc", "square", "ring"]
    assert prepared.evaluation.image.shape == (10, 24, 24, 3)
    assert prepared.training.image.shape == (60, 24, 24, 3) and len(prepared.calibration.label) == 5
    # The shapes tell the classes apart: a square covers most, a ring least.
    bright = (prepared.training.image.max(axis=3) > 100).mean(axis=(1, 2))
    means = [bright[prepared.training.label == number].mean() for number in range(3)]
    assert means[1] > means[0] > means[2]
