"""`aces doctor`: whether this folder can run the pipeline, checked before any work starts."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import yaml
from pydantic import BaseModel

from aces import params, paths, runtime
from aces.console import console, say, warn
from aces.errors import EXTRAS, InputError, missing, one_line

EXAMPLE = "aces doctor"


def configure(parser) -> None:
    pass


def run(args) -> int:
    check()
    return 0


def check() -> None:
    """InputError, in one line, for the first thing that is missing for the pipeline."""
    check_packages()
    check_git()
    check_environment()
    check_identity()
    loaded = params.load()
    check_graph()
    check_files(loaded)
    check_networks(loaded)
    check_store()
    console.print(
        f"[green]ready[/green]: {loaded.dataset.name}, {loaded.certify.method}, sigma "
        f"{loaded.sigma:g}"
    )
    if runtime.devices(runtime.from_environment().device)[0].type == "cuda":
        say("on this GPU for the first time? `aces selftest` tries it in a minute")


def check_packages() -> None:
    """The library alone is installed without what the pipeline needs."""
    for module in EXTRAS["pipeline"]:
        if find_spec(module) is None:
            raise InputError(missing(module, "pipeline"))


def check_graph() -> None:
    """DVC reads params.yaml by itself, without the defaults of `aces.params`: a key that dvc.yaml
    names must stand in the file.
    """
    if not paths.GRAPH.is_file():
        raise InputError(f"there is no {paths.GRAPH} here: run this in the project's folder")
    written = yaml.safe_load(paths.PARAMS.read_text(encoding="utf-8"))
    names = keys_of_dvc(paths.GRAPH.read_text(encoding="utf-8"))
    if absent := [f"{name}: {_default(name)}" for name in names if not _has(written, name)]:
        raise InputError(
            f"{paths.PARAMS} leaves out keys that DVC needs to see there: add {', '.join(absent)}"
        )
    from dvc.exceptions import DvcException
    from dvc.repo import Repo  # slow to import

    try:
        _ = Repo().index.stages
    except DvcException as error:
        raise InputError(f"DVC cannot read the pipeline: {one_line(error)}") from None


def keys_of_dvc(graph: str) -> list[str]:
    """The parameters that dvc.yaml names: in paths, and as what a stage depends on."""
    listed = [stage.get("params", []) for stage in yaml.safe_load(graph)["stages"].values()]
    names = [name for stage in listed for name in stage if isinstance(name, str)]
    return sorted({*re.findall(r"\$\{([\w.]+)\}", graph), *names})


def _has(tree: object, name: str) -> bool:
    for key in name.split("."):
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True


def _default(name: str) -> str:
    """The default of a key, as params.yaml would say it. An empty section has all its defaults."""
    value: object = params.Params()
    for key in name.split("."):
        value = getattr(value, key)
    if isinstance(value, BaseModel):
        return "{}"
    return yaml.safe_dump(value).removesuffix("...\n").strip()


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
        return  # the shape of the images is known only after the stage `subsample`
    info = data.info(loaded.dataset.name)
    for section in (loaded.core, loaded.certify):
        if section.checkpoint == params.NONE:  # else the file says what it holds
            networks.check_arch(section.arch, num_classes=info.num_classes, shape=info.shape)


def check_store() -> None:
    """In a copied project the runs of `mlflow.db` name files of the original, until now."""
    from aces.tracking import store

    if (old := store.adopt()) is not None:
        say(f"mlflow.db was made in {old.parent}: its runs have their files here now")


def check_git() -> None:
    if shutil.which("git") is None:
        raise InputError("git is not installed: DVC keeps its experiments in git")
    if subprocess.run(["git", "rev-parse", "--git-dir"], capture_output=True).returncode:
        raise InputError(
            f"{Path.cwd()} is not a git repository, which DVC needs: clone the project, or run "
            "`git init`"
        )


def check_identity() -> None:
    """DVC keeps experiments as git commits, and git refuses to commit without a name and an email."""
    missing = [name for name in ("user.name", "user.email") if not _configured(name)]
    if missing and not _named_by_environment():
        warn(
            f"git has no {' and no '.join(missing)}, without which `dvc exp run` stops: before the "
            'first experiment, run `git config --global user.name "Your Name"` and '
            "`git config --global user.email you@example.org`"
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
