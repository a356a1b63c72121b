"""What changes only the speed, from the environment: never a parameter, never in a fingerprint.

ACES_DEVICE   auto, cpu, cuda or cuda:1 (default auto: every GPU there is, else the CPU)
ACES_WORKERS  how many workers sample (default: one per GPU, or one per core)
ACES_ENGINE   local or ray (default local)
ACES_DATA     where raw datasets are kept (default <root>/scratch/datasets)
ACES_IMAGENET the folder with ImageNet's val/<wnid>/ and train/<wnid>/ (default <datasets>/imagenet)
"""

import os
from dataclasses import dataclass
from pathlib import Path

from aces.errors import InputError

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Runtime:
    device: str
    workers: int | None
    engine: str


def from_environment() -> Runtime:
    engine = os.environ.get("ACES_ENGINE", "local")
    if engine not in ENGINES:
        raise InputError(f"ACES_ENGINE={engine!r}: expected one of {', '.join(ENGINES)}")
    workers = os.environ.get("ACES_WORKERS")
    if workers is not None and not (workers.isdigit() and int(workers) > 0):
        raise InputError(f"ACES_WORKERS={workers!r}: expected a whole number above 0")
    return Runtime(device=os.environ.get("ACES_DEVICE", "auto"), workers=int(workers) if workers else None, engine=engine)


def root() -> Path:
    """The main repository, also from DVC's temporary copies of it (there `DVC_ROOT` names it)."""
    if "DVC_ROOT" in os.environ:
        return Path(os.environ["DVC_ROOT"])
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".dvc").is_dir() and ".dvc/tmp" not in folder.as_posix():
            return folder
    return here


def scratch() -> Path:
    """Partial work of long stages and raw datasets: outside DVC's outputs, shared by all runs."""
    return root() / "scratch"


def datasets() -> Path:
    return Path(os.environ.get("ACES_DATA", scratch() / "datasets"))
