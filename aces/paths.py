"""Where everything lies: the pipeline's files, and the folders that all runs share.

The pipeline's paths are relative to the working directory, which under `dvc exp run --temp` is a
temporary copy of the repository. What outlives a run (scratch, raw datasets) lies in the main one.
"""

import os
from pathlib import Path

PARAMS = Path("params.yaml")
GRAPH = Path("dvc.yaml")
MODELS = Path("models")
DEPLOYED = MODELS / "deployed"  # the network as it was run, in the precision of the draws
DEPLOYED_ABOUT = DEPLOYED / "about.json"  # its hash, its precision, and what ran it
DEPLOYED_GRAPH = DEPLOYED / "network.onnx"  # exists only if that precision is int8
SAMPLES = Path("samples")
COUNTS = SAMPLES / "counts.npz"
CORE = SAMPLES / "core.npz"  # the core network's answers
COMPARISON_COUNTS = SAMPLES / "comparison"
MANIFEST = SAMPLES / "manifest.json"  # digests of what the draws were made from, and of the draws
RESULTS = Path("results")
OUTCOMES = RESULTS / "outcomes.parquet"
CURVE = RESULTS / "curve.csv"
COMPARISON = RESULTS / "comparison.csv"
METRICS = RESULTS / "metrics.json"
SUMMARY = RESULTS / "summary.json"  # the run in single numbers; METRICS are a few of them
CALIBRATION = RESULTS / "calibration.json"
RESULTS_MANIFEST = RESULTS / "manifest.json"  # digests of what was combined, and of the results
STAGE_METRICS = Path("metrics")
REPORTS = Path("reports")
REPORT = ("index.html", "figures", "tables")  # what the stage `report` writes there
ATTACK = REPORTS / "attack" / "attack.json"  # written by `aces attack`


def network(role: str, folder: Path = Path()) -> Path:
    """The weights of `core`, `certify` or `select`."""
    return folder / MODELS / f"{role}.safetensors"


def stage_metrics(stage: str) -> Path:
    """The summary of a stage."""
    return STAGE_METRICS / f"{stage}.json"


def training_curve(role: str) -> Path:
    """One row per epoch of a network's training."""
    return STAGE_METRICS / f"{role}.csv"


def dataset_folder(name: str) -> Path:
    """The folder of a dataset's images, as dvc.yaml names it; `torchvision/MNIST` is a folder in a
    folder.
    """
    return Path("data") / name


def registered_model(dataset: str) -> str:
    """The name of a dataset's model in MLflow, where names have no `/` and no `:`.

    That of `torchvision/MNIST` is `aces-torchvision-MNIST`.
    """
    return "aces-" + dataset.replace("/", "-").replace(":", "-")


def evaluation_images(name: str) -> Path:
    return dataset_folder(name) / "eval.npz"


def calibration_images(name: str) -> Path:
    return dataset_folder(name) / "calibration.npz"


def training_images(name: str) -> Path:
    return dataset_folder(name) / "train.npz"


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
    """Where raw datasets are kept."""
    return Path(os.environ.get("ACES_DATA", scratch() / "datasets"))
