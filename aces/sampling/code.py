"""A digest of the code that a draw runs through: counts made by other code are other counts."""

import functools
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aces import extension, grid
from aces.files import digest, digest_of
from aces.networks import quantized
from aces.networks.identity import describe
from aces.rule import counts
from aces.sampling.tally import Score

# Of this folder, what happens between the noise and the counts.
_MODULES = (
    "batches",
    "checks",
    "copies",
    "count",
    "cuda",
    "export",
    "forward",
    "images",
    "kernels",
    "lattice",
    "noise",
    "openvino_graph",
    "quantise",
    "tally",
    "units",
)
_PACKAGES = ("numpy", "torch", "numba")


def code_digest(score: Score | None = None) -> str:
    """sha256 of the sampler's code, of a score of the user's own, and of the versions of the
    packages that run them.
    """
    here = Path(__file__).parent
    files = [here / f"{name}.py" for name in _MODULES]
    files += [Path(str(module.__file__)) for module in (grid, counts, quantized)]
    own = None if score is None else (extension.source_digest(score), describe(score))
    found = [digest(file) for file in files if file.exists()]
    return digest_of(*found, own, *map(_version, _PACKAGES), sys.byteorder)


@functools.cache  # asking takes milliseconds, and what is loaded stays loaded
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
