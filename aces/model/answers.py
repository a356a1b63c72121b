"""From outcomes of the rule and answers of the sampler to certificates and predictions."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import ndtr

from aces.model.certificates import Certificate, Circumstances, Prediction
from aces.rule import ABSTAIN, Outcomes, Route
from aces.rule.counts import Counts, Settings
from aces.sampling import Answer, Images
from aces.sampling.lattice import lattice
from aces.sampling.noise import rounding_distance


@dataclass(frozen=True)
class Writer:
    """Writes the answers of one call: all of them are about these images, at this theta."""

    images: Images
    theta: float
    rule: str
    alpha: float
    classes: Sequence[str] | None

    def certificates(self, outcomes: Outcomes, counts: Counts) -> list[Certificate]:
        """One per image, from the outcomes at the only theta."""
        assert outcomes.p_select is not None and outcomes.p_class is not None
        return self._certificates(
            counts.settings,
            prediction=outcomes.prediction[:, 0],
            radius=outcomes.radius[:, 0],
            route=outcomes.route[:, 0],
            p_select=outcomes.p_select[:, 0],
            p_class=outcomes.p_class[:, 0],
            draws=counts.draws.sum(axis=0),
            invalid=counts.invalid.sum(axis=0),
        )

    def certificates_at(self, answers: list[Answer]) -> list[Certificate]:
        """One per image, from answers about one radius."""
        settings, radius = answers[0].settings, np.array([it.radius for it in answers])
        # Where the radius is certified, the probabilities exceed this one.
        shown = np.where(radius > 0, ndtr(radius / settings.sigma), 0.0)
        return self._certificates(
            settings,
            prediction=np.array([it.prediction for it in answers]),
            radius=radius,
            route=np.array([it.route for it in answers]),
            p_select=shown,
            p_class=shown,
            draws=np.array([it.draws for it in answers]),
            invalid=np.array([it.invalid for it in answers]),
        )

    def predictions(
        self, labels: np.ndarray, routes: np.ndarray, counts: Counts
    ) -> list[Prediction]:
        draws, invalid = counts.draws.sum(axis=0), counts.invalid.sum(axis=0)
        columns = zip(
            labels.tolist(), routes.tolist(), draws.tolist(), invalid.tolist(), strict=True
        )
        return [self._prediction(counts.settings, *column) for column in columns]

    def predictions_of(self, answers: list[Answer]) -> list[Prediction]:
        return [
            self._prediction(it.settings, it.prediction, it.route, it.draws, it.invalid)
            for it in answers
        ]

    def _certificates(self, settings: Settings, **columns: np.ndarray) -> list[Certificate]:
        how = asdict(self._circumstances(settings))
        rounding = self._rounding(settings)
        # A certificate speaks of the image on the lattice; around the image itself it is smaller.
        smaller = np.nextafter(columns["radius"] - rounding, -np.inf)
        columns["radius"] = np.where(rounding > 0, np.maximum(smaller, 0.0), columns["radius"])
        rows = zip(
            *(column.tolist() for column in columns.values()), rounding.tolist(), strict=True
        )
        names = [*columns, "rounding"]
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return [
            Certificate(
                **row | {"route": Route(row["route"])},
                name=self._name(row["prediction"]),
                values=math.prod(self.images.shape),
                **how,
            )
            for row in made
        ]

    def _prediction(
        self, settings: Settings, label: int, route: int, draws: int, invalid: int
    ) -> Prediction:
        return Prediction(
            label,
            route=Route(route),
            draws=draws,
            invalid=invalid,
            name=self._name(label),
            **asdict(self._circumstances(settings)),
        )

    def _circumstances(self, settings: Settings) -> Circumstances:
        return Circumstances(
            alpha=self.alpha,
            seed=settings.seed,
            sigma=settings.sigma,
            theta=self.theta,
            rule=self.rule,
            noise=settings.noise,
            precision=settings.precision,
            backend=settings.backend,
            generator=GENERATORS[settings.noise],
        )

    def _rounding(self, settings: Settings) -> np.ndarray:
        """(N,) how far each image was moved to the lattice."""
        if settings.noise != "exact":
            return np.zeros(len(self.images))
        return rounding_distance(self.images.pixels, lattice(settings.sigma))

    def _name(self, label: int) -> str:
        return self.classes[label] if self.classes is not None and label != ABSTAIN else ""


# What makes the random numbers, by the kind of noise.
GENERATORS = {"exact": "keyed stream, rounded Gaussian by table", "float": "torch normal_"}


def prediction_routes(
    labels: np.ndarray, outcomes: Outcomes, guess: np.ndarray, core: np.ndarray
) -> np.ndarray:
    """(N,) who gave each answer of PREDICT.

    Where CERTIFY, from the same draws, gives the same answer, it knows by which route. Elsewhere
    the classes tell: an answer that both networks give is by both of them.
    """
    by_class = np.select(
        [labels == ABSTAIN, (labels == core) & (labels == guess), labels == core],
        [Route.ABSTAIN, Route.AGREE, Route.CORE],
        Route.CERTIFY,
    )
    return np.where(outcomes.prediction[:, 0] == labels, outcomes.route[:, 0], by_class)
