"""Noise sampling: networks and images -> counts, or single answers with as few draws as they
need."""

from aces.sampling.anytime import Answer, certify_at, predict
from aces.sampling.clean import classes_of
from aces.sampling.images import Images
from aces.sampling.plan import DrawPlan
from aces.sampling.quantise import quantise
from aces.sampling.sampler import rounding_distance, sample

__all__ = [
    "Answer",
    "DrawPlan",
    "Images",
    "certify_at",
    "classes_of",
    "predict",
    "quantise",
    "rounding_distance",
    "sample",
]
