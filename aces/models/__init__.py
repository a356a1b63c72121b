"""Networks: architectures by name, their files, published checkpoints."""

from aces.models.files import fingerprint, load_model, read_metadata, save_model
from aces.models.registry import build

__all__ = ["build", "fingerprint", "load_model", "read_metadata", "save_model"]
