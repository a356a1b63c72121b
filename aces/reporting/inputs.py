"""What a report is made from, and the quantities that follow from it. N images, T thetas, of
which S are shown.

The report never applies the rule: answers, bounds and selections are those of
results/outcomes.parquet. The counts serve only for the histograms and the shares of draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aces.data.known import title
from aces.params import Params
from aces.reporting.outcomes import OutcomeTable
from aces.rule import metrics
from aces.rule.counts import BINS, Counts, Round
from aces.rule.outcomes import Outcomes
from aces.rule.working_point import WorkingPoint, working_point

if TYPE_CHECKING:
    from aces.data import EvalSet

SCORES = {"entropy": "entropy", "network": "selection score"}
RULES = {"paper": "the paper's rule", "confident": "the confident rule"}
METHODS = {
    "gaussian": "Gaussian",
    "smoothadv": "SmoothAdv",
    "macer": "MACER",
    "consistency": "Consistency",
}
NOTICEABLE = 0.005  # a radius certified for a smaller share of the images gets no figure
STEPS = 200  # steps of the page's slider at most: more would only make the page larger


def shown_steps(count: int, *, always: int = 0) -> np.ndarray:
    """The thetas that are shown: all of them, or every k-th, with the last and `always`."""
    intervals = count - 1
    stride = (
        next(k for k in range(1, intervals + 1) if intervals % k == 0 and intervals // k <= STEPS)
        if intervals
        else 1
    )
    return np.union1d(np.arange(0, count, stride), [always])


@dataclass(frozen=True)
class Inputs:
    """A run, as the stages `sample`, `calibrate` and `combine` left it.

    comparison: what ACES is compared with (series, sigma, theta, nac, acr,
    certified_accuracy@<r>), or None; calibration: the content of results/calibration.json, or None;
    provenance: section -> name -> value; attack: what `attacks.read_attack` found, or None.
    """

    params: Params
    evaluation: "EvalSet"
    counts: Counts
    core: np.ndarray  # (N,) classes of the core network
    outcomes: OutcomeTable
    curve: pd.DataFrame
    metrics: dict
    comparison: pd.DataFrame | None = None
    calibration: Mapping | None = None
    provenance: dict = field(default_factory=dict)
    attack: Mapping | None = None

    def __post_init__(self) -> None:
        same = np.array_equal
        assert same(self.outcomes.index, self.counts.index), (
            "outcomes do not belong to these counts"
        )
        assert same(self.outcomes.index, self.evaluation.index), "outcomes are of other images"

    @property
    def sigma(self) -> float:
        return self.params.sigma

    @property
    def thetas(self) -> np.ndarray:
        return self.outcomes.theta

    @property
    def radius_names(self) -> list[str]:
        """The radii of the curve as its columns name them."""
        prefix = "certified_accuracy@"
        return [name.removeprefix(prefix) for name in self.curve.columns if name.startswith(prefix)]

    @property
    def radii(self) -> list[float]:
        return [float(name) for name in self.radius_names]

    @property
    def label(self) -> np.ndarray:
        return self.evaluation.label

    @property
    def rule(self) -> str:
        """The rule of the outcomes: `paper` or `confident`."""
        return self.params.combine.rule

    @property
    def score(self) -> str:
        """What is compared with theta, in words."""
        return "doubt" if self.rule == "confident" else self.paper_score

    @property
    def paper_score(self) -> str:
        """What the paper's rule compares with theta, in words."""
        name = self.params.select.score
        return SCORES.get(name, name.rpartition(":")[2])

    @property
    def method(self) -> str:
        return METHODS.get(self.params.certify.method, self.params.certify.method)

    @property
    def dataset(self) -> str:
        return title(self.params.dataset)

    @property
    def alone(self) -> dict[str, float]:
        """The certification network by itself: nac, acr, certified_accuracy@<r>."""
        return self.metrics["certify"]

    @property
    def core_nac(self) -> float:
        return float(self.metrics["core"]["nac"])

    @property
    def ceiling(self) -> float:
        """The largest radius that n draws can certify."""
        return float(self.metrics["acr_ceiling"])

    @property
    def concerns(self) -> list[str]:
        """What makes these numbers doubtful, a sentence each."""
        return [str(concern) for concern in self.metrics.get("concerns", [])]

    @cached_property
    def working_point(self) -> WorkingPoint:
        return working_point(
            self.thetas,
            nac=self.curve["nac"].to_numpy(),
            acr=self.curve["acr"].to_numpy(),
            core_nac=self.core_nac,
            chosen=self.params.report.theta,
            calibration=self.calibration,
        )

    @cached_property
    def steps(self) -> np.ndarray:
        """(S,) the thetas of the page and of the figures of all images."""
        return shown_steps(len(self.thetas), always=self.working_point.step)

    @property
    def varying_noise(self) -> pd.DataFrame:
        """The certification network by itself at other noise levels, in ascending order."""
        return self._series("sigma").sort_values("sigma")

    @property
    def entropy_selection(self) -> pd.DataFrame:
        """The curve with the entropy in place of the selection network."""
        return self._series("entropy").sort_values("theta")

    @property
    def other_rule(self) -> str | None:
        """The rule that the outcomes were not made with, where its curve is known."""
        found = [name for name in RULES if name != self.rule and len(self._series(name))]
        return found[0] if found else None

    @property
    def other_curve(self) -> pd.DataFrame:
        """The curve of the other rule from the same draws; no rows where it is not known."""
        return self._series(self.other_rule or "none").sort_values("theta")

    @property
    def rule_differences(self) -> list[dict[str, float]]:
        """Both rules' ACR at the same losses of natural accuracy: `loss`, a column for each rule,
        `difference`, `low`, `high`; no rows where the other rule is not known.
        """
        return list(self.metrics.get("rules", [])) if self.other_rule is not None else []

    @cached_property
    def correct(self) -> np.ndarray:
        """(N, T) whether CERTIFY's answer is right."""
        return self.outcomes.correct

    @cached_property
    def alone_radius(self) -> np.ndarray:
        """(N,) the certified radius of the certification network by itself.

        At theta = 1 every draw selects it, so ACES is plain randomized smoothing there.
        """
        return self.outcomes.radius[:, -1]

    @cached_property
    def alone_correct(self) -> np.ndarray:
        """(N,) whether the certification network by itself is right, and certified."""
        return self.correct[:, -1]

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """95 % intervals of the curve at `steps`: theta, then <metric>_low and <metric>_high."""
        table, steps = self.outcomes, self.steps
        columns = metrics.intervals(
            Outcomes(
                prediction=table.prediction[:, steps],
                radius=table.radius[:, steps],
                route=table.route[:, steps],
                selected=table.selected[:, steps],
                selection_radius=table.selection_radius[:, steps],
            ),
            table.natural_prediction[:, steps],
            self.label,
            thetas=self.thetas[steps],
            radii=self.radii,
            resamples=self.params.report.bootstrap,
            seed=self.params.seed,
        )
        return pd.DataFrame(columns)

    @cached_property
    def draws(self) -> np.ndarray:
        """(N,) draws of round BOUND."""
        return self.counts.draws[Round.BOUND]

    @property
    def histogram(self) -> np.ndarray:
        """(N, BINS + 1) draws of round BOUND by what is compared with theta."""
        counts = self.counts.doubt if self.rule == "confident" else self.counts.score
        return counts[Round.BOUND]

    @property
    def joint_histogram(self) -> np.ndarray:
        """(N, BINS + 1) the same, only draws of the guessed class."""
        counts = self.counts
        return (counts.joint_doubt if self.rule == "confident" else counts.joint_score)[Round.BOUND]

    @cached_property
    def selecting(self) -> np.ndarray:
        """(N, S) draws of round BOUND that speak for the certification network, at `steps`.

        The paper's rule asks for a score of at most theta; the confident rule also for the guessed
        class.
        """
        chosen = self.joint_histogram if self.rule == "confident" else self.histogram
        bins = np.rint(self.thetas[self.steps] * BINS).astype(int)
        return np.cumsum(chosen, axis=1)[:, bins]

    @cached_property
    def p_select(self) -> np.ndarray:
        """(N, S) share of draws on the more frequent side of the selection, at `steps`."""
        valid = self.histogram.sum(axis=1)[:, None]  # invalid draws speak for nobody
        return np.maximum(self.selecting, valid - self.selecting) / self.draws[:, None]

    @cached_property
    def p_class(self) -> np.ndarray:
        """(N,) share of draws of the guessed class."""
        return self.joint_histogram.sum(axis=1) / self.draws

    @cached_property
    def median_score(self) -> np.ndarray:
        """(N,) the score that half of the draws do not exceed."""
        below = np.cumsum(self.histogram, axis=1)
        return (below >= (below[:, -1:] + 1) // 2).argmax(axis=1) / BINS

    @cached_property
    def certifiable(self) -> np.ndarray:
        """(N,) whether the certification network by itself is right at `middle_radius`."""
        return self.alone_correct & (self.alone_radius >= self.middle_radius)

    @property
    def reachable_radii(self) -> list[float]:
        """The radii above 0 that n draws can certify."""
        return [radius for radius in self.radii if 0 < radius <= self.ceiling]

    @property
    def shown_radii(self) -> list[float]:
        """The radii that have a figure: those at which anything noticeable is certified."""
        curves = (self.curve, self.other_curve, pd.DataFrame([self.alone]))

        def most(radius: float) -> float:
            name = f"certified_accuracy@{radius:g}"
            return max((curve[name].max() for curve in curves if name in curve), default=0)

        reachable = self.reachable_radii
        return [radius for radius in reachable if most(radius) >= NOTICEABLE] or reachable[:1]

    @property
    def lead_radius(self) -> float:
        """The radius that short sentences speak of: of those that are shown, nearest to sigma."""
        shown = self.shown_radii or self.radii[:1]
        return min(shown, key=lambda radius: abs(radius - self.sigma))

    @property
    def middle_radius(self) -> float:
        """A radius that tells images apart: the middle one of those that can be reached."""
        reachable = self.reachable_radii or [0.0]
        return reachable[(len(reachable) - 1) // 2]

    def _series(self, name: str) -> pd.DataFrame:
        if self.comparison is None:
            return pd.DataFrame(columns=["series", "sigma", "theta", "nac", "acr"])
        return self.comparison[self.comparison["series"] == name]
