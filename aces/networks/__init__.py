"""Networks: architectures by name, their files, published checkpoints, denoisers."""

from aces.networks.checkpoints import Imported, import_checkpoint, load_checkpoint
from aces.networks.denoise import build_denoiser
from aces.networks.denoisers import before, load_denoiser, save_denoiser
from aces.networks.files import fingerprint, load_model, read_metadata, save_model
from aces.networks.registry import build, check_arch

__all__ = [
    "Imported",
    "before",
    "build",
    "build_denoiser",
    "check_arch",
    "fingerprint",
    "import_checkpoint",
    "load_checkpoint",
    "load_denoiser",
    "load_model",
    "read_metadata",
    "save_denoiser",
    "save_model",
]
