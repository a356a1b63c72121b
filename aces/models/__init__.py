"""Networks: architectures by name, their files, published checkpoints."""

from aces.models.checkpoints import Imported, import_checkpoint, load_checkpoint
from aces.models.files import fingerprint, load_model, read_metadata, save_model
from aces.models.registry import build, check_arch

__all__ = ["Imported", "build", "check_arch", "fingerprint", "import_checkpoint", "load_checkpoint", "load_model",
           "read_metadata", "save_model"]
