"""How far the answers of a finished run, in its precision, are from those in float32.

The float32 network draws anew with the noise of the run, so that what differs is the network alone.
For comparison, it draws once more with other noise.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from aces import data, networks, paths, rule, runtime
from aces.console import progress
from aces.data import EvalSet
from aces.errors import InputError
from aces.networks.quantized import load_deployed
from aces.params import Params
from aces.rule import metrics, samples
from aces.rule.counts import Counts, Round, Settings
from aces.rule.radii import automatic_radii
from aces.sampling.batches import Job, batches
from aces.sampling.count import Counter
from aces.sampling.drawing import Drawing
from aces.sampling.forward import Network, opened, prepare
from aces.sampling.images import Images
from aces.sampling.local import LocalEngine
from aces.sampling.units import Sizes, cut

DRAWS = 100  # of each image, at most, whose classes are compared one by one
THETAS = np.arange(101) / 100

Curve = dict[str, np.ndarray]  # (T,) values of a metric


def measure_precision(params: Params) -> dict:
    """The answers of the run in this folder against those of its network in float32.

    same_class: the share of single draws whose class is the same. differences: for each metric of
    the curve, the mean and the largest difference over the thetas. other_noise: the same for
    float32 against itself with other noise.
    """
    counts, core = samples.read_evaluation()
    settings = counts.settings
    if settings.precision == "float32" or counts.looks or params.select.score != "entropy":
        raise InputError(
            f"this run has sample.precision: {settings.precision}, select.score: "
            f"{params.select.score} and {'some' if counts.looks else 'no'} early stopping: "
            "expected another precision than float32, the score entropy and no early stopping"
        )
    evaluation = data.read_eval(paths.evaluation_images(params.dataset.name))
    network = networks.load_model(paths.network("certify"))
    drawer = _Drawer(network, evaluation, _device(settings.precision))
    run = drawer.prepared(load_deployed() if settings.precision == "int8" else network, settings)
    if run.backend != settings.backend:
        raise InputError(
            f"this run was drawn by {settings.backend}, here it would be drawn by {run.backend}, "
            "perhaps with other noise: expected the same; run `dvc repro -f sample`"
        )
    same_noise = _curve(drawer.draw(settings), core, params)
    other_noise = _curve(drawer.draw(replace(settings, seed=settings.seed + 1)), core, params)
    return {
        "precision": settings.precision,
        "images": len(core),
        "n": settings.n,
        "same_class": drawer.same_class(run, settings),
        "differences": _differences(_curve(counts, core, params), same_noise),
        "other_noise": _differences(other_noise, same_noise),
    }


def _device(precision: str) -> torch.device:
    """Where `aces.sampling.sample` draws in this precision."""
    name = runtime.from_environment().device
    return runtime.devices("cpu" if precision == "int8" and name == "auto" else name)[0]


@dataclass(frozen=True, eq=False)
class _Drawer:
    """Draws with a network in float32."""

    network: nn.Module
    evaluation: EvalSet
    device: torch.device

    @property
    def images(self) -> Images:
        return Images.of(self.evaluation.image)

    @property
    def index(self) -> np.ndarray:
        """(N,) the positions in the test set, which key the noise."""
        return np.asarray(self.evaluation.index)

    def prepared(self, network: nn.Module, settings: Settings) -> Network:
        """The network in the precision of these settings."""
        return prepare(
            network,
            None,
            shape=self.images.shape,
            num_classes=self.evaluation.num_classes,
            precision=settings.precision,
            device=self.device,
        )

    def draw(self, settings: Settings) -> Counts:
        """The counts that float32 gives for the noise of these settings."""
        settings = replace(settings, precision="float32")
        network, images = self.prepared(self.network, settings), self.images
        settings = replace(settings, backend=network.backend)
        counter = Counter(network, settings, self.evaluation.num_classes)
        rounds = dict(zip(Round, (settings.n0, settings.n, settings.n_predict), strict=True))
        with (
            LocalEngine(counter, [self.device]) as engine,
            progress("bench", len(images) * sum(rounds.values()), "draws") as bar,
        ):
            sizes = Sizes(network.batch, network.batch)
            drawing = Drawing(counter, images.pixels, self.index, engine, None, bar, sizes=sizes)
            for round_, draws in rounds.items():
                drawing.draw(round_, range(len(images)), stop=draws)
        return drawing.counts(self.evaluation.label)

    @torch.inference_mode()
    def same_class(self, run: Network, settings: Settings) -> float:
        """The share of draws to which float32 and the network of the run give the same class."""
        network = self.prepared(self.network, replace(settings, precision="float32"))
        ways = [opened(each, self.device) for each in (network, run)]
        pixels, same, total = self.images.pixels, 0, 0
        stop, sizes = min(DRAWS, settings.n0), Sizes(network.batch, network.batch)
        everyone = range(len(pixels))
        for unit in cut(Round.GUESS, everyone, stop=stop, chunk=settings.chunk, sizes=sizes):
            index = self.index[unit.images]
            job = Job(unit, pixels[unit.images], index, np.full(len(index), -1))
            for batch in batches(job, settings, size=network.batch, device=self.device):
                one, other = (batch.kept(way(batch.draws))[0].argmax(dim=1) for way in ways)
                same, total = same + int((one == other).sum()), total + batch.used
        return same / total


def _curve(counts: Counts, core: np.ndarray, params: Params) -> Curve:
    combine, n = params.combine, params.sample.n
    options: dict = {
        "alpha": combine.alpha,
        "thetas": THETAS,
        "rule": combine.rule,
        "multiplicity": combine.multiplicity,
    }
    outcomes, natural = rule.certify(counts, core, **options), rule.predict(counts, core, **options)
    radii = automatic_radii(sigma=params.sigma, n=n, alpha=combine.alpha)
    curve = metrics.curve(outcomes, natural, counts.label, thetas=THETAS, radii=radii)
    del curve["theta"]
    return curve


def _differences(curve: Curve, other: Curve) -> dict[str, dict[str, float]]:
    apart = {name: np.abs(values - other[name]) for name, values in curve.items()}
    return {
        name: {"mean": float(each.mean()), "largest": float(each.max())}
        for name, each in apart.items()
    }
