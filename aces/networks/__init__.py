"""Networks: architectures by name, their files, published checkpoints."""

from aces.networks.checkpoints import Imported, import_checkpoint, load_checkpoint
from aces.networks.files import fingerprint, load_model, read_metadata, save_model
from aces.networks.registry import build, check_arch

__all__ = [
    "Imported",
    "build",
    "check_arch",
    "fingerprint",
    "import_checkpoint",
    "load_checkpoint",
    "load_model",
    "read_metadata",
    "save_model",
]
