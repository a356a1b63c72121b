"""The sampler for the tests, which name the plan's and the runtime's values side by side."""

from dataclasses import fields

import aces
import odd_networks
from aces import sampling
from aces.rule.counts import Counts, write_counts

PLAN = {field.name for field in fields(aces.DrawPlan)}
RUNTIME = {field.name for field in fields(aces.Runtime)}
# Few draws of a small network, in several chunks and all rounds.
SMALL = dict(
    sigma=0.25,
    num_classes=odd_networks.CLASSES,
    n0=50,
    n=400,
    n_predict=100,
    seed=0,
    chunk=100,
    device="cpu",
)


def sample(network, images, **options) -> Counts:
    """`aces.sampling.sample`, without progress bars."""
    plan = {name: options.pop(name) for name in PLAN & options.keys()}
    runtime = {"progress": False} | {name: options.pop(name) for name in RUNTIME & options.keys()}
    return sampling.sample(
        network, images, aces.DrawPlan(**plan), runtime=aces.Runtime(**runtime), **options
    )


def written(folder, counts: Counts) -> bytes:
    """The file of the counts."""
    write_counts(folder / "counts.npz", counts)
    return (folder / "counts.npz").read_bytes()
