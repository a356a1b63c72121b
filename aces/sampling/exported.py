"""Exported networks, kept between processes: exporting one takes longer than all else at the start.

Only networks that `aces.networks.build` made are kept. What such a network computes is fixed by its
recipe, its weights, the code of its classes and the versions of the libraries, and all of these are
part of the name of its file. The logits of what is read are compared with the network's own before
it is used, as they are after an export, so a damaged file is noticed and replaced.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from torch import nn

from aces import networks, paths
from aces.files import digest, digest_of, write_bytes

MOST_FILES = 40  # the oldest are removed
LIBRARIES = ("torch", "torchvision", "timm", "onnx", "onnxscript")


def kept(
    module: nn.Module,
    parts: Sequence[nn.Module],
    shape: tuple[int, ...],
    export: Callable[[], bytes],
) -> tuple[bytes, Callable[[], None]]:
    """The exported network, from its file or by `export`, and what to call if it turns out wrong.

    module: what is exported; parts: the networks in it; shape: (C, H, W) of the images.
    """
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    if hooked or not all(getattr(part, "recipe", None) for part in parts):
        return export(), lambda: None
    file = folder() / f"{_key(module, parts, shape)}.onnx"
    try:
        content = file.read_bytes()
        os.utime(file)  # recently used files are kept
    except OSError:
        content = export()
        with contextlib.suppress(OSError):  # a place that cannot be written costs only time
            write_bytes(file, content)
            _remove_old(file.parent)
    return content, lambda: file.unlink(missing_ok=True)


def folder() -> Path:
    """In a project beside the other partial work, else in the user's cache."""
    root = paths.root()
    if (root / ".dvc").is_dir():
        return root / "scratch" / "exported"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aces" / "exported"


def _key(module: nn.Module, parts: Sequence[nn.Module], shape: tuple[int, ...]) -> str:
    classes = {type(each) for each in module.modules()}
    sources = {
        inspect.getsourcefile(each) for each in classes if each.__module__.startswith("aces.")
    }
    return digest_of(
        networks.fingerprint(module),
        [sorted(part.recipe.items()) for part in parts],  # type: ignore[union-attr, operator]
        shape,
        sorted(f"{each.__module__}.{each.__qualname__}" for each in classes),
        sorted(digest(source) for source in sources if source),
        _attributes(module),
        digest(__file__),
        [_version(name) for name in LIBRARIES],
    )


def _attributes(module: nn.Module) -> list[tuple[str, str, str]]:
    """The plain Python attributes of all layers: strides, probabilities, switches and the like."""
    return [
        (name, key, repr(value))
        for name, layer in module.named_modules()
        for key, value in sorted(vars(layer).items())
        if isinstance(value, (bool, int, float, str, tuple, list, type(None)))
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _remove_old(place: Path) -> None:
    files = sorted(place.glob("*.onnx"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)
