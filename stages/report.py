"""Tables, figures and the page."""

import platform
from importlib.metadata import version

from aces import data, paths, reporting
from aces.console import warn
from aces.files import digest
from aces.params import Params
from aces.reporting import attacks, results
from aces.rule import samples
from aces.tracking import StageRun
from stages.runner import run_stage

PACKAGES = (
    "aces",
    "torch",
    "torchvision",
    "onnxruntime",
    "numba",
    "numpy",
    "scipy",
    "dvc",
    "mlflow",
)


def report(params: Params, run: StageRun) -> None:
    counts, core = samples.read_evaluation()
    samples.check(*samples.inputs(params))
    results.check(*results.MADE_FROM, *results.MADE)
    found = results.read_project()
    made_from = provenance(params)
    attack = attacks.read_attack(paths.ATTACK, made_from["SHA-256"])
    if attack is None and paths.ATTACK.exists():
        warn(
            f"report: {paths.ATTACK} is about other networks or images: `aces attack` makes it anew"
        )
    inputs = reporting.Inputs(
        params=params,
        evaluation=data.read_eval(paths.evaluation_images(params.dataset.name)),
        counts=counts,
        core=core,
        outcomes=reporting.read_outcomes(paths.OUTCOMES),
        curve=found.curve,
        metrics=found.summary,
        comparison=found.comparison,
        calibration=found.calibration,
        provenance=made_from,
        attack=attack,
    )
    reporting.write_report(paths.REPORTS, inputs)


def provenance(params: Params) -> dict:
    """Where the numbers come from. Nothing that differs between two runs of the same inputs."""
    files = [
        paths.evaluation_images(params.dataset.name),
        *(paths.network(role) for role in ("core", "certify", "select")),
        paths.COUNTS,
    ]
    versions = {name: version(name) for name in PACKAGES}
    return {
        "SHA-256": {str(path): digest(path) for path in files},
        "versions": {"python": platform.python_version(), **versions},
    }


if __name__ == "__main__":
    run_stage("report", report)
