"""`aces doctor`: can this folder run the pipeline? Said before any work starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from aces import params, paths, runtime
from aces.console import console, say, warn
from aces.errors import InputError

EXAMPLE = "aces doctor"


def configure(parser) -> None:
    pass


def run(args) -> int:
    check()
    return 0


def check() -> None:
    """Everything that the pipeline needs, with one line for what is missing."""
    check_git()
    check_environment()
    check_identity()
    loaded = params.load()
    check_files(loaded)
    check_networks(loaded)
    console.print(
        f"[green]ready[/green]: {loaded.dataset.name}, {loaded.certify.method}, sigma "
        f"{loaded.sigma:g}"
    )
    if runtime.devices(runtime.from_environment().device)[0].type == "cuda":
        say("on this GPU for the first time? `aces selftest` tries it in a minute")


def check_files(loaded: params.Params) -> None:
    """The files of trained weights that params.yaml names are there, or will be."""
    from aces.networks.formats import existing  # slow to import

    denoiser = loaded.certify.denoiser
    named = [loaded.core.checkpoint, loaded.certify.checkpoint, loaded.select.checkpoint]
    named += [denoiser.checkpoint] if denoiser is not None else []
    for checkpoint in named:
        made_here = Path(checkpoint).parent == paths.MODELS  # by an earlier stage
        if checkpoint != params.NONE and not made_here:
            existing(checkpoint)


def check_networks(loaded: params.Params) -> None:
    from aces import data, networks  # slow to import

    if loaded.dataset.name not in data.DATASETS:
        return  # what the images are is known once the stage `subsample` has read them
    info = data.info(loaded.dataset.name)
    for arch in (loaded.core.arch, loaded.certify.arch):
        networks.check_arch(arch, num_classes=info.num_classes, shape=info.shape)


def check_git() -> None:
    if shutil.which("git") is None:
        raise InputError("git is not installed: DVC keeps its experiments in git")
    if subprocess.run(["git", "rev-parse", "--git-dir"], capture_output=True).returncode:
        raise InputError(
            f"{Path.cwd()} is not a git repository, which DVC needs: clone the project, or run "
            "`git init`"
        )


def check_identity() -> None:
    """DVC commits experiments, and git commits nothing for somebody without a name."""
    missing = [name for name in ("user.name", "user.email") if not _configured(name)]
    if missing and not _named_by_environment():
        warn(
            f"git has no {' and no '.join(missing)}, without which `dvc exp run` stops: before "
            "the first "
            'experiment, run `git config --global user.name "Your Name"` and `git config --global '
            "user.email you@example.org`"
        )


def _configured(name: str) -> bool:
    answer = subprocess.run(["git", "config", name], capture_output=True, text=True)
    return answer.returncode == 0 and bool(answer.stdout.strip())


def _named_by_environment() -> bool:
    names = (f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))
    return all(os.environ.get(name) for name in names)


def check_environment() -> None:
    python = shutil.which("python")
    if python is None or Path(python).parent != Path(sys.executable).parent:
        raise InputError(
            f"the stages would run {python or 'no python at all'}: activate the environment first, "
            f"`source .venv/bin/activate` (or `make repro`, which does)"
        )
