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
from aces.sampling.noise import lattice_points, rounding_distance


@dataclass(frozen=True)
class Writer:
    """Writes the answers of one call: all of them are about these images, at this theta."""

    images: Images
    theta: float
    rule: str
    alpha: float
    classes: Sequence[str] | None
    core: str  # sha256 of the core network

    def certificates(self, outcomes: Outcomes, counts: Counts) -> list[Certificate]:
        """One per image, from the outcomes at the only theta."""
        assert outcomes.p_select is not None and outcomes.p_class is not None
        # A certificate speaks of the image on the lattice; around the image itself it is smaller.
        radius, rounding = outcomes.radius[:, 0], rounding_of(self.images, counts.settings)
        smaller = np.maximum(np.nextafter(radius - rounding, -np.inf), 0.0)
        return self._certificates(
            counts.settings,
            prediction=outcomes.prediction[:, 0],
            radius=np.where(rounding > 0, smaller, radius),
            route=outcomes.route[:, 0],
            p_select=outcomes.p_select[:, 0],
            p_class=outcomes.p_class[:, 0],
            draws=counts.draws.sum(axis=0),
            invalid=counts.invalid.sum(axis=0),
            rounding=rounding,
        )

    def certificates_at(self, answers: list[Answer], *, radius: float) -> list[Certificate]:
        """One per image, from answers about this radius, or about a larger one that allows for the
        rounding.
        """
        settings, certified = answers[0].settings, np.array([it.radius > 0 for it in answers])
        # Where the radius is certified, the probabilities exceed this one.
        exceeded = ndtr(radius / settings.sigma) * (1 - 2.0**-50)  # more than it may err
        shown = np.where(certified, exceeded, 0.0)
        return self._certificates(
            settings,
            prediction=np.array([it.prediction for it in answers]),
            radius=np.where(certified, radius, 0.0),
            route=np.array([it.route for it in answers]),
            p_select=shown,
            p_class=shown,
            draws=np.array([it.draws for it in answers]),
            invalid=np.array([it.invalid for it in answers]),
            rounding=rounding_of(self.images, settings),
        )

    def predictions(
        self, labels: np.ndarray, routes: np.ndarray, counts: Counts
    ) -> list[Prediction]:
        draws, invalid = counts.draws.sum(axis=0), counts.invalid.sum(axis=0)
        columns = zip(
            labels.tolist(),
            routes.tolist(),
            draws.tolist(),
            invalid.tolist(),
            rounding_of(self.images, counts.settings).tolist(),
            strict=True,
        )
        return [self._prediction(counts.settings, *column) for column in columns]

    def predictions_of(self, answers: list[Answer]) -> list[Prediction]:
        moved = rounding_of(self.images, answers[0].settings)
        return [
            self._prediction(it.settings, it.prediction, it.route, it.draws, it.invalid, rounding)
            for it, rounding in zip(answers, moved.tolist(), strict=True)
        ]

    def _certificates(self, settings: Settings, **columns: np.ndarray) -> list[Certificate]:
        how = asdict(self._circumstances(settings))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        made = [dict(zip(columns, row, strict=True)) for row in rows]
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
        self,
        settings: Settings,
        label: int,
        route: int,
        draws: int,
        invalid: int,
        rounding: float,
    ) -> Prediction:
        return Prediction(
            label,
            route=Route(route),
            draws=draws,
            invalid=invalid,
            name=self._name(label),
            rounding=rounding,
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
            generator=generator_of(settings),
            tv=settings.tv,
            model=settings.model,
            core=self.core,
            n0=settings.n0,
            n=settings.n,
        )

    def _name(self, label: int) -> str:
        return self.classes[label] if self.classes is not None and label != ABSTAIN else ""


def rounding_of(images: Images, settings: Settings) -> np.ndarray:
    """(N,) the l2 distance of each image from the lattice point that was drawn from in its place.

    It is 0 for uint8 images, and for floats that are the nearest ones to lattice points: these are
    the same images in another notation.
    """
    if settings.noise != "exact":
        return np.zeros(len(images))
    steps = lattice(settings.sigma)
    points = lattice_points(images.pixels, steps).double() / steps.scale
    same = (images.pixels == points.to(images.pixels.dtype)).flatten(1).all(dim=1).numpy()
    return np.where(same, 0.0, rounding_distance(images.pixels, steps))


def generator_of(settings: Settings) -> str:
    """What made the random numbers of the draws (`aces.sampling.noise`). On a GPU torch runs the
    network, and the backend is named after the GPU.
    """
    on_cpu = not settings.backend.startswith("torch") or settings.backend.endswith(" cpu")
    if settings.noise == "exact":
        return f"{'ChaCha8' if on_cpu else 'Philox'}, rounded Gaussian by {'runs' if on_cpu else 'table'}"
    return ("Mersenne Twister" if on_cpu else "Philox") + ", torch normal_"


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
