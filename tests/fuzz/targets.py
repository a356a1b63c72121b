"""All targets, and the share of the cases that each gets: those that take long get few."""

from .checkpoints import Checkpoints
from .counts import CountsFiles
from .images import Images
from .parameters import Parameters

TARGETS = {target.name: target for target in (Parameters, CountsFiles, Checkpoints, Images)}
SHARES = {"parameters": 0.35, "counts": 0.25, "checkpoints": 0.2, "images": 0.2}
