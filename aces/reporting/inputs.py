"""What a report is made from, and the quantities that follow from it. N images, T thetas."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aces.params import Params
from aces.rule import composition, metrics, smoothing
from aces.rule.composition import Outcomes, Route
from aces.rule.counts import BINS, Counts, Round

if TYPE_CHECKING:
    from aces.data import EvalSet

SCORES = {"entropy": "entropy", "network": "selection score"}
METHODS = {
    "gaussian": "Gaussian",
    "smoothadv": "SmoothAdv",
    "macer": "MACER",
    "consistency": "Consistency",
}
# of the core network's natural accuracy, which a working point may give up unless something else is
# said
LOSS = 0.05
DATASETS = {"cifar10": "CIFAR-10", "imagenet": "ImageNet", "digits": "the digits"}


def working_point(curve: pd.DataFrame, core_nac: float, *, loss: float = LOSS) -> int:
    """The row of the largest ACR within `loss` of the core network's natural accuracy; of the
    largest NAC if none is.
    """
    within = curve["nac"].to_numpy() >= core_nac - loss - 1e-12
    return int(
        np.where(within, curve["acr"], -1).argmax() if within.any() else curve["nac"].argmax()
    )


@dataclass(frozen=True)
class Inputs:
    """A run: `outcomes`, `curve` and `metrics` are the files of the stage `combine`.

    baseline: what ACES is compared with (series, sigma, theta, nac, acr, certified_accuracy@<r>),
    or None; provenance: section -> name -> value.
    """

    params: Params
    evaluation: "EvalSet"
    counts: Counts
    core: np.ndarray  # (N,) classes of the core network
    outcomes: pd.DataFrame
    curve: pd.DataFrame
    metrics: dict
    baseline: pd.DataFrame | None = None
    provenance: dict = field(default_factory=dict)

    @property
    def sigma(self) -> float:
        return self.params.sigma

    @property
    def thetas(self) -> np.ndarray:
        return self.curve["theta"].to_numpy()

    @property
    def radii(self) -> list[float]:
        return self.params.combine.radii

    @property
    def label(self) -> np.ndarray:
        return self.evaluation.label

    @property
    def score(self) -> str:
        """What is compared with theta, in words."""
        return SCORES[self.params.select.mechanism]

    @property
    def method(self) -> str:
        return METHODS.get(self.params.certify.method, self.params.certify.method)

    @property
    def dataset(self) -> str:
        return DATASETS.get(self.params.dataset.name, self.params.dataset.name)

    @property
    def alone(self) -> dict[str, float]:
        """The certification network by itself: nac, acr, certified_accuracy@<r>."""
        return self.metrics["certify"]

    @property
    def ceiling(self) -> float:
        """The largest radius that n draws can certify."""
        return float(self.metrics["acr_ceiling"])

    @property
    def varying_noise(self) -> pd.DataFrame:
        """The certification network by itself at other noise levels, in ascending order."""
        return self._series("sigma").sort_values("sigma")

    @property
    def entropy_selection(self) -> pd.DataFrame:
        """The curve with the entropy in place of the selection network."""
        return self._series("entropy").sort_values("theta")

    @cached_property
    def natural(self) -> np.ndarray:
        """(N, T) answers of PREDICT."""
        return self._matrix("natural_prediction")

    @cached_property
    def rule(self) -> Outcomes:
        """The outcomes with what their file does not hold: the bounds, and the radius of the
        selection.
        """
        settings = self.params.combine
        rule = composition.certify(
            self.counts,
            self.core,
            sigma=self.sigma,
            alpha=settings.alpha,
            thetas=self.thetas,
            multiplicity=settings.multiplicity,
        )
        names = np.array([route.name.lower() for route in Route])
        assert (names[rule.route] == self._matrix("route")).all(), (
            "outcomes do not belong to these counts"
        )
        return rule

    @cached_property
    def correct(self) -> np.ndarray:
        """(N, T) whether CERTIFY's answer is right."""
        return self.rule.prediction == self.label[:, None]

    @cached_property
    def smoothed(self) -> smoothing.Smoothed:
        """The certification network by itself, image by image."""
        return smoothing.certify(self.counts, sigma=self.sigma, alpha=self.params.combine.alpha)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Bootstrap intervals of the curve: theta, then <metric>_low and <metric>_high."""
        return metrics.intervals(
            self.rule,
            self.natural,
            self.label,
            thetas=self.thetas,
            radii=self.radii,
            resamples=self.params.report.bootstrap,
            seed=self.params.seed,
        )

    @cached_property
    def draws(self) -> np.ndarray:
        """(N,) draws of round BOUND."""
        return self.counts.draws[Round.BOUND]

    @cached_property
    def selected(self) -> np.ndarray:
        """(N, T) draws of round BOUND that select the certification network: score <= theta."""
        return self._below[:, composition.places_of(self.thetas)]

    @cached_property
    def p_select(self) -> np.ndarray:
        """(N, T) share of draws that agree with the more frequent selection."""
        others = self._below[:, -1:] - self.selected  # invalid draws select nobody
        return np.maximum(self.selected, others) / self.draws[:, None]

    @cached_property
    def p_class(self) -> np.ndarray:
        """(N,) share of draws of the guessed class."""
        return self.counts.joint_score[Round.BOUND].sum(axis=1) / self.draws

    @cached_property
    def median_score(self) -> np.ndarray:
        """(N,) the score that half of the draws do not exceed."""
        return (self._below >= (self._below[:, -1:] + 1) // 2).argmax(axis=1) / BINS

    @cached_property
    def certifiable(self) -> np.ndarray:
        """(N,) whether the certification network by itself is right at `middle_radius`."""
        return (self.smoothed.prediction == self.label) & (
            self.smoothed.radius >= self.middle_radius
        )

    @property
    def reachable_radii(self) -> list[float]:
        """The radii above 0 that n draws can certify."""
        return [radius for radius in self.radii if 0 < radius <= self.ceiling]

    @property
    def middle_radius(self) -> float:
        """A radius that tells images apart: the middle one of those that can be reached."""
        reachable = self.reachable_radii or [0.0]
        return reachable[(len(reachable) - 1) // 2]

    @cached_property
    def _below(self) -> np.ndarray:
        """(N, BINS + 1) draws of round BOUND with a score of at most i / BINS."""
        return np.cumsum(self.counts.score[Round.BOUND], axis=1)

    def _series(self, name: str) -> pd.DataFrame:
        if self.baseline is None:
            return pd.DataFrame(columns=["series", "sigma", "theta", "nac", "acr"])
        return self.baseline[self.baseline["series"] == name]

    def _matrix(self, column: str) -> np.ndarray:
        """(N, T) a column of the outcomes, images in the order of the evaluation set."""
        frame = self.outcomes[["index", "theta"]].assign(value=np.asarray(self.outcomes[column]))
        return (
            frame.pivot(index="index", columns="theta", values="value")
            .loc[self.evaluation.index]
            .to_numpy()
        )
