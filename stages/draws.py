"""What the stages that draw noise share: the network that is run, the plan, the core's answers."""

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from aces import data, extension, files, networks, paths, runtime, sampling
from aces.data import EvalSet
from aces.data.images import read_images
from aces.networks.quantized import load_deployed
from aces.params import SCORES, Params
from aces.rule.counts import Counts
from aces.sampling import DrawPlan
from aces.sampling.quantise import IMAGES as CALIBRATION_IMAGES


def certification_network(params: Params) -> nn.Module:
    """The certification network in the precision that is certified.

    In int8 it is made here, calibrated on noisy training images, and kept as a file of its own. The
    same files give the same network.
    """
    network = networks.load_model(paths.network("certify"))
    if params.sample.precision != "int8":
        return network
    images = _spread_images(data.read_train(paths.training_images(params.dataset.name)))
    quantized = sampling.quantise(network, images, sigma=params.sigma, seed=params.seed)
    quantized.save(paths.DEPLOYED_GRAPH)
    return quantized


def deployed_network(params: Params) -> nn.Module:
    """The network that the stage `sample` ran."""
    if params.sample.precision == "int8":
        return load_deployed()
    return networks.load_model(paths.network("certify"))


def _spread_images(training: data.TrainSet) -> np.ndarray:
    """(N, H, W, C) uint8: training images, evenly spread, as many as calibrate int8."""
    count = len(training.label)
    rows = np.unique(np.linspace(0, count - 1, min(CALIBRATION_IMAGES, count)).astype(int))
    if isinstance(training.image, np.ndarray):
        return training.image[rows]
    files = [training.image[row] for row in rows]
    return read_images(files, shape=training.shape, resize=training.resize)


def selection_network(params: Params) -> nn.Module | None:
    """The selection network, if that is the score."""
    if params.select.score != "network":
        return None
    return networks.load_model(paths.network("select"))


def own_score(params: Params) -> Callable[[Tensor], Tensor] | None:
    """The user's own score, if there is one."""
    name = params.select.score
    return None if name in SCORES else extension.resolve(name, what="select.score")


def core_answers(images: EvalSet) -> np.ndarray:
    """(N,) the core network's classes of the images, without noise."""
    device = runtime.devices(runtime.from_environment().device)[0]
    core = networks.load_model(paths.network("core")).to(device)
    return sampling.classes_of(core, images.for_core, num_classes=images.num_classes)


def draw_plan(
    params: Params, *, n: int, n_predict: int = 0, sigma: float | None = None
) -> DrawPlan:
    settings = params.sample
    return DrawPlan(
        sigma=params.sigma if sigma is None else sigma,
        n0=settings.n0,
        n=n,
        n_predict=n_predict,
        seed=params.seed,
        chunk=settings.chunk,
        noise=settings.noise,
        precision=settings.precision,
        adaptive=settings.adaptive if settings.adaptive.enabled else None,
    )


def sampling_runtime() -> runtime.Runtime:
    return runtime.from_environment(scratch=paths.scratch() / "sampling")


def write_deployed(counts: Counts) -> None:
    """What certificates speak of: the network by its hash, its precision, and what ran it."""
    settings = counts.settings
    about = {name: getattr(settings, name) for name in ("model", "precision", "backend", "noise")}
    if settings.precision == "int8":
        about["sha256"] = files.digest(paths.DEPLOYED_GRAPH)
    files.write_json(paths.DEPLOYED_ABOUT, about)
