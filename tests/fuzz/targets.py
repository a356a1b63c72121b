"""All targets, and the share of the cases that each gets: those that take long get few."""

from .checkpoints import Checkpoints
from .counts import CountsFiles
from .datasets import DatasetFiles
from .deployed import Deployed
from .folders import Folders
from .images import Images
from .parameters import Parameters
from .requests import Requests
from .results import ResultFiles
from .scratch import Scratch

TARGETS = {
    target.name: target
    for target in (
        Parameters,
        CountsFiles,
        Checkpoints,
        Images,
        Folders,
        Requests,
        ResultFiles,
        DatasetFiles,
        Deployed,
        Scratch,
    )
}
SHARES = {
    "parameters": 0.2,
    "counts": 0.15,
    "checkpoints": 0.1,
    "images": 0.14,
    "folders": 0.09,
    "requests": 0.09,
    "results": 0.1,
    "datasets": 0.08,
    "deployed": 0.03,
    "scratch": 0.02,
}
