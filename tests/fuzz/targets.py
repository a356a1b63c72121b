"""All targets, and the share of the cases that each gets: those that take long get few."""

from .checkpoints import Checkpoints
from .counts import CountsFiles
from .folders import Folders
from .images import Images
from .parameters import Parameters
from .requests import Requests
from .scratch import Scratch

TARGETS = {
    target.name: target
    for target in (Parameters, CountsFiles, Checkpoints, Images, Folders, Requests, Scratch)
}
SHARES = {
    "parameters": 0.28,
    "counts": 0.2,
    "checkpoints": 0.12,
    "images": 0.18,
    "folders": 0.1,
    "requests": 0.1,
    "scratch": 0.02,
}
