"""Noise sampling: networks and images -> counts."""

from aces.sampling.sampler import sample

__all__ = ["sample"]
