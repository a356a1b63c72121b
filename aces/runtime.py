"""What changes only the speed, from the environment: never a parameter, never in a fingerprint.

ACES_DEVICE   auto, cpu, cuda or cuda:1 (default auto: every GPU there is, else the CPU)
ACES_WORKERS  how many workers sample (default: one per GPU, or one per core)
ACES_ENGINE   local or ray (default local)
ACES_DATA     where raw datasets are kept (default <root>/scratch/datasets)
ACES_IMAGENET the folder with ImageNet's val/<wnid>/ and train/<wnid>/ (default <datasets>/imagenet)
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aces.errors import InputError

if TYPE_CHECKING:
    import torch

ENGINES = ("local", "ray")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Runtime:
    """How work is done, never what comes out of it.

    scratch: the folder where finished parts of long work are kept, so that a killed run can go on;
    None keeps nothing. progress: whether to show a progress bar. stop: is called from time to time
    during the work; when it returns True, the work ends with the exception `Stopped`.
    """

    device: str = "auto"  # auto, cpu, cuda (every GPU) or cuda:1
    workers: int | None = None  # threads or GPUs; None: all of them
    engine: str = "local"
    scratch: Path | None = None
    progress: bool = True
    stop: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine={self.engine!r}: expected one of {', '.join(ENGINES)}")
        if self.workers is not None and not (isinstance(self.workers, int) and self.workers > 0):
            raise InputError(f"workers={self.workers!r}: expected a whole number above 0")


class Stopped(Exception):
    """The caller asked for the work to end before it was done (`Runtime.stop`)."""


def from_environment(*, scratch: Path | None = None) -> Runtime:
    """The runtime that the variables above describe."""
    engine = os.environ.get("ACES_ENGINE", "local")
    if engine not in ENGINES:
        raise InputError(f"ACES_ENGINE={engine!r}: expected one of {', '.join(ENGINES)}")
    workers = os.environ.get("ACES_WORKERS")
    if workers is not None and not (workers.isdigit() and int(workers) > 0):
        raise InputError(f"ACES_WORKERS={workers!r}: expected a whole number above 0")
    device = os.environ.get("ACES_DEVICE", "auto")
    return Runtime(device, int(workers) if workers else None, engine, scratch)


def devices(name: str) -> list["torch.device"]:
    """The devices that `auto`, `cpu`, `cuda` (every GPU) or `cuda:1` name."""
    import torch

    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if name == "cpu" or (name == "auto" and not gpus):
        return [torch.device("cpu")]
    if name in ("auto", "cuda") and gpus:
        return _alike(gpus)
    found = [gpu for gpu in gpus if str(gpu) == name]
    if not found:
        raise InputError(
            f"device={name!r} is not on this machine: expected auto, "
            f"{', '.join(['cpu', *map(str, gpus)])}"
        )
    return found


def _alike(gpus: list["torch.device"]) -> list["torch.device"]:
    """The GPUs of the same kind as the first: another kind makes other noise and other last digits."""
    import torch

    return [
        gpu
        for gpu in gpus
        if torch.cuda.get_device_name(gpu) == torch.cuda.get_device_name(gpus[0])
    ]


def cores() -> int:
    """The cores this process may use: those it is bound to, or fewer where its container has a
    quota.
    """
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(bound, _quota(CPU_QUOTA) or bound)


def _quota(path: Path) -> int | None:
    """The whole cores of a control group's quota, `<microseconds> <period>`; None where there is
    none.
    """
    try:
        share, period = path.read_text().split()
        return None if share == "max" else max(1, int(share) // int(period))
    except (OSError, ValueError):
        return None
