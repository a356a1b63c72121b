"""What a finished run of the pipeline knows of its model: networks, images, working point."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from aces import data, params, paths
from aces.errors import InputError, one_line
from aces.grid import is_on_grid
from aces.networks import load_model
from aces.networks.quantized import load_deployed


def read(folder: Path, *, theta: float | None = None) -> dict[str, Any]:
    """The arguments of `ACES` for the run in `folder`; a given theta goes before the run's."""
    settings = params.load(folder / paths.PARAMS)
    paper = settings.combine.rule == "paper"
    if paper and settings.select.score not in params.SCORES:
        raise InputError(
            f"select.score={settings.select.score!r}: a score of your own is known to the pipeline "
            "only; with combine.rule: confident the model needs none"
        )
    selects = paper and settings.select.score == "network"
    networks = read_networks(folder, settings, selects=selects)
    info = read_info(folder, settings)
    return {
        **networks,
        "sigma": settings.sigma,
        "theta": working_theta(folder, settings) if theta is None else theta,
        "rule": settings.combine.rule,
        "noise": settings.sample.noise,
        "precision": settings.sample.precision,
        "num_classes": info.num_classes,
        "classes": info.classes,
        "shape": info.shape,
        "resize": info.resize,
    }


def read_networks(folder: Path, settings: params.Params, *, selects: bool) -> dict[str, nn.Module]:
    roles = ["core", "certify"] + (["select"] if selects else [])
    found = {role: load_model(paths.network(role, folder)) for role in roles}
    if settings.sample.precision == "int8":  # the network that was sampled is the one to speak of
        found["certify"] = load_deployed(folder)
    return found


def read_info(folder: Path, settings: params.Params) -> data.Info:
    """What the images are: as the stage `subsample` noted it, or as the dataset is known."""
    path = folder / paths.evaluation_images(settings.dataset.name)
    return data.read_eval(path).info if path.exists() else data.info(settings.dataset.name)


def working_theta(folder: Path, settings: params.Params) -> float:
    """The one theta of the run: set by `report.theta`, chosen by `calibrate`, or, where neither is
    there, the one that the results were summarised at.
    """
    if settings.report.theta is not None:
        return settings.report.theta
    for path in (folder / paths.CALIBRATION, folder / paths.METRICS):
        theta = _theta_in(path)
        if theta is not None:
            return theta
    raise InputError(
        f"{folder / paths.CALIBRATION} has no theta: run `dvc repro`, set report.theta in "
        f"{folder / paths.PARAMS}, or give a theta"
    )


def _theta_in(path: Path) -> float | None:
    """The theta in a JSON file of the pipeline; None where the file or its theta is missing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({one_line(error)}): run `dvc repro`") from None
    theta = content.get("theta") if isinstance(content, dict) else None
    if theta is not None and not (type(theta) in (int, float) and is_on_grid(theta)):
        raise InputError(
            f"{path}: theta={str(theta)[:40]}: expected a number on the grid of thetas"
        )
    return theta
