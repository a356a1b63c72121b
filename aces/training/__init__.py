"""Training: one loop, one file a method."""

from aces.training.loop import train_network
from aces.training.methods import Batch, Loss, Method, resolve, standard

__all__ = ["Batch", "Loss", "Method", "resolve", "standard", "train_network"]
