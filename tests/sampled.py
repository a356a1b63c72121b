"""The sampler for the tests, which name the plan's and the runtime's values side by side."""

from dataclasses import fields

import aces
from aces import sampling
from aces.rule.counts import Counts

PLAN = {field.name for field in fields(aces.DrawPlan)}
RUNTIME = {field.name for field in fields(aces.Runtime)}


def sample(network, images, **options) -> Counts:
    """`aces.sampling.sample`, without progress bars."""
    plan = {name: options.pop(name) for name in PLAN & options.keys()}
    runtime = {"progress": False} | {name: options.pop(name) for name in RUNTIME & options.keys()}
    return sampling.sample(
        network, images, aces.DrawPlan(**plan), runtime=aces.Runtime(**runtime), **options
    )
