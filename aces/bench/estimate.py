"""How long the pipeline will take on this machine: a few seconds of measuring, then arithmetic.

Training is measured in steps of the real training loop, drawing in runs of the real sampler, both
on random images of the dataset's size. What cannot be measured beforehand is an assumption, and
each part says its own.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
from torch import nn

from aces import data, networks, paths, runtime
from aces.data import Info, TrainSet
from aces.errors import InputError
from aces.params import NONE, Params, Train
from aces.runtime import Runtime
from aces.sampling import DrawPlan, quantise, sample
from aces.training import Method, methods, standard, train_network
from aces.training.distributed import choose_device
from aces.training.optimizers import precision_on

# Training images and test images of the datasets whose size is known before they are there.
SIZES = {"cifar10": (50_000, 10_000), "imagenet": (1_281_167, 50_000)}
EPOCHS = 3  # epochs of a measurement of training; the first one warms up and is not counted
ENOUGH = 0.6  # seconds that a measurement should take
PIXELS = 2**20  # a measured batch has at most so many pixels
STAGES, START = 9, 4  # of the pipeline, and the seconds that one takes to start
EVALUATION = 0.02  # seconds that `combine` and `report` take for an image
EARLY, EARLY_FROM = 0.5, 10_000  # the share of draws that early stopping leaves, from so many on
CALIBRATION = 218  # draws of a calibration image after its guess: measured, of at most 2,000


@dataclass(frozen=True)
class Part:
    """One stage, how long it takes, and why."""

    stage: str
    seconds: float
    why: str


@dataclass(frozen=True)
class Sizes:
    """How many images there are to train on, to evaluate, and to choose theta on."""

    training: int
    evaluation: int
    calibration: int


def estimate(params: Params) -> list[Part]:
    """The parts of a run from nothing; the download of the dataset is not among them."""
    where = runtime.from_environment()
    sizes, info = sizes_of(params), info_of(params)
    parts = []
    if _is_trained(params.core.checkpoint, params.core.weights):
        speed = training_speed(
            params.core.arch, params.core.train, standard.method(), 0.0, info, where
        )
        parts.append(_training("train_core", params.core.arch, params.core.train, speed, sizes))
    method, certify = methods.resolve(params.certify, params.sigma), params.certify
    certify_speed = None
    if _is_trained(certify.checkpoint, certify.weights):
        certify_speed = training_speed(
            certify.arch, certify.train, method, params.sigma, info, where
        )
        parts.append(_training("train_certify", certify.arch, certify.train, certify_speed, sizes))
    if certify.denoiser.arch != "none" and certify.denoiser.checkpoint == NONE:
        parts.append(_denoiser(params, info, sizes, where))
    start = time.perf_counter()
    network = certification_network(params, info)
    speed = sampling_speed(params, network, info, where)
    prepared = time.perf_counter() - start  # quantising, exporting, and the measurement itself
    if params.select.score == "network" and params.select.checkpoint == NONE:
        parts.append(_selection(params, sizes, speed, certify_speed))
    parts += _drawing(params, sizes, speed, prepared)
    parts.append(_rest(sizes))
    return parts


def sizes_of(params: Params) -> Sizes:
    """From the files of the stage `subsample`, or, for well-known datasets, without them."""
    name, wanted = params.dataset.name, params.calibrate.images
    evaluation = paths.evaluation_images(name)
    if evaluation.exists():
        return Sizes(
            len(data.read_train(paths.training_images(name)).label),
            len(data.read_eval(evaluation).label),
            len(data.read_eval(paths.calibration_images(name)).label) if wanted else 0,
        )
    if name not in SIZES:
        raise InputError(
            f"dataset.name={name!r}: its size is known once the images are there: run `dvc repro "
            "subsample` first"
        )
    training, test = SIZES[name]
    evaluated = -(-test // params.dataset.stride)
    return Sizes(training, evaluated, min(wanted, test - evaluated))


def info_of(params: Params) -> Info:
    evaluation = paths.evaluation_images(params.dataset.name)
    return (
        data.read_eval(evaluation).info if evaluation.exists() else data.info(params.dataset.name)
    )


def certification_network(params: Params, info: Info) -> nn.Module:
    """Untrained, which is as fast, and in the precision that is sampled."""
    certify = params.certify
    network: nn.Module = networks.build(
        certify.arch, num_classes=info.num_classes, mean=info.mean, std=info.std
    ).eval()
    if certify.denoiser.arch != "none":
        denoiser = networks.build_denoiser(certify.denoiser.arch, channels=info.shape[0])
        network = networks.before(denoiser, network, sigma=params.sigma).eval()
    if params.sample.precision == "int8":
        network = quantise(network, _images(info, 16), sigma=params.sigma)
    return network


def training_speed(
    arch: str, settings: Train, method: Method, sigma: float, info: Info, where: Runtime
) -> float:
    """Images a second of the training loop."""
    per_batch = max(2, PIXELS // math.prod(info.shape))
    images = max(1, min(settings.batch, per_batch) // method.split)
    batch = images * method.split
    network = networks.build(arch, num_classes=info.num_classes, mean=info.mean, std=info.std)
    precision = precision_on(choose_device(where.device), settings)
    recipe = settings.replace(epochs=EPOCHS, batch=batch, milestones=[], precision=precision)

    def measure(steps: int) -> float:
        """Seconds of one step."""
        ends: list[float] = []
        train_network(
            network,
            TrainSet(_images(info, steps * images), _labels(info, steps * images), info.classes),
            settings=recipe,
            method=method,
            sigma=sigma,
            seed=0,
            title="estimate",
            runtime=Runtime(device=where.device, progress=False),
            on_epoch=lambda epoch, metrics: ends.append(time.perf_counter()),
        )
        return (ends[-1] - ends[0]) / (EPOCHS - 1) / steps

    step = measure(1)
    if step < ENOUGH / 4:
        step = measure(min(32, math.ceil(ENOUGH / step / (EPOCHS - 1))))
    return images / step


def sampling_speed(params: Params, network: nn.Module, info: Info, where: Runtime) -> float:
    """Draws a second of the sampler."""
    settings, images = params.sample, _images(info, 4)

    def measure(draws: int) -> float:
        start = time.perf_counter()
        sample(
            network,
            images,
            DrawPlan(
                sigma=params.sigma,
                n0=settings.chunk,
                n=draws,
                chunk=settings.chunk,
                noise=settings.noise,
                precision=settings.precision,
            ),
            num_classes=info.num_classes,
            runtime=Runtime(device=where.device, workers=where.workers, progress=False),
        )
        return time.perf_counter() - start

    draws = settings.chunk
    measure(draws)  # prepares the network
    while (seconds := measure(draws)) < ENOUGH / 2:
        draws = math.ceil(draws * min(16, ENOUGH / seconds))
    return len(images) * (settings.chunk + draws) / seconds


def _training(stage: str, arch: str, settings: Train, speed: float, sizes: Sizes) -> Part:
    seconds = settings.epochs * sizes.training / speed
    epochs = f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''}"
    return Part(stage, seconds, f"{arch}, {epochs} of {sizes.training:,} images at {speed:,.0f}/s")


def _denoiser(params: Params, info: Info, sizes: Sizes, where: Runtime) -> Part:
    """A denoiser is about as fast to train as its forward pass is to draw, times three."""
    settings, network = params.certify.denoiser, certification_network(params, info)
    speed = sampling_speed(params, network, info, where) / 3
    part = _training("train_certify", settings.arch, settings.train, speed, sizes)
    return Part(part.stage, part.seconds, part.why + " (a third of the draws a second)")


def _selection(params: Params, sizes: Sizes, drawing: float, training: float | None) -> Part:
    draws = sizes.training * params.select.draws
    learning = params.certify.train.epochs * sizes.training / (training or drawing / 3)
    return Part(
        "train_select",
        draws / drawing + learning,
        f"{draws:,} draws for the labels, then as the certification network",
    )


def _drawing(params: Params, sizes: Sizes, speed: float, prepared: float) -> list[Part]:
    settings = params.sample
    early = settings.adaptive.enabled and settings.n >= EARLY_FROM
    runs = 1 + len(params.baseline.sigmas) + (params.select.score == "network")
    one = settings.n0 + settings.n + settings.n_predict
    draws = sizes.evaluation * one * runs
    why = f"{sizes.evaluation:,} images x {one:,} draws"
    why += f" x {runs} series" if runs > 1 else ""
    why += f" at {speed:,.0f}/s"
    why += ", half of them saved by early stopping" if early else ""
    parts = [Part("sample", draws * (EARLY if early else 1.0) / speed + prepared, why)]
    if sizes.calibration:
        one = settings.n0 + min(params.calibrate.n, CALIBRATION)
        why = f"{sizes.calibration:,} images x {one:,} draws at {speed:,.0f}/s"
        parts.append(Part("calibrate", sizes.calibration * one / speed, why))
    return parts


def _rest(sizes: Sizes) -> Part:
    return Part(
        "the rest",
        STAGES * START + EVALUATION * sizes.evaluation,
        f"the start of {STAGES} stages, {START} s each; tables, figures, tracking",
    )


def _is_trained(checkpoint: str, weights: str | None) -> bool:
    return checkpoint == NONE and weights is None


def _images(info: Info, count: int) -> np.ndarray:
    channels, height, width = info.shape
    random = np.random.default_rng(0)
    return random.integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def _labels(info: Info, count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, info.num_classes, count)
