"""Training: one loop for all methods, one file for each of them."""

from aces.training.batches import Batch, Loss
from aces.training.loop import train_network
from aces.training.method import Method
from aces.training.methods import resolve

__all__ = ["Batch", "Loss", "Method", "resolve", "train_network"]
