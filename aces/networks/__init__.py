"""Networks: architectures by name, their files, published checkpoints, denoisers."""

from aces.networks.checkpoints import Imported, import_checkpoint, load_checkpoint
from aces.networks.denoise import build_denoiser
from aces.networks.denoisers import before, load_denoiser, save_denoiser
from aces.networks.files import fingerprint, load_model, read_metadata, save_model
from aces.networks.identity import identity
from aces.networks.pretrained import pretrained
from aces.networks.registry import build, check_arch
from aces.networks.resolution import at_size

__all__ = [
    "Imported",
    "at_size",
    "before",
    "build",
    "build_denoiser",
    "check_arch",
    "fingerprint",
    "identity",
    "import_checkpoint",
    "load_checkpoint",
    "load_denoiser",
    "load_model",
    "pretrained",
    "read_metadata",
    "save_denoiser",
    "save_model",
]
