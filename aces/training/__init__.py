"""Training: one loop for all methods, one file for each of them."""

from aces.training.loop import train_network
from aces.training.methods import Batch, Loss, Method, resolve

__all__ = ["Batch", "Loss", "Method", "resolve", "train_network"]
