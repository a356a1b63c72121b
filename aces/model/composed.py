"""ACES as a model: any torch networks in, certificates out.

    model = aces.ACES(core=core, certify=certify, sigma=0.25, theta=0.5, num_classes=10)
    certificate, = model.certify(image[None])
    certificate.prediction, certificate.radius, certificate.route

The networks are the paper's: `core` answers accurately and without a radius, `certify` answers
under noise, and `select`, or else the entropy of `certify`, decides between the two.
"""

import copy
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from torch import Tensor, nn

from aces import data, params, sampling
from aces.errors import InputError
from aces.model import folder as saved
from aces.networks import load_model
from aces.rule import composition
from aces.rule.composition import Route
from aces.rule.counts import Counts
from aces.rule.sequential import log_evidence
from aces.rule.smoothing import ABSTAIN
from aces.rule.statistics import check_alpha, floor_digits
from aces.runtime import Runtime
from aces.sampling import DrawPlan, Images

GREY_LEVELS = 255
N0_PREDICT = 50  # of an adaptive prediction's draws, those that fix the guesses
# Adaptive certificates: looks after 1 %, 10 % and all of n draws, and what they spend of alpha; an
# image stops when its radius can grow by no more than 1 % of the largest possible.
LOOKS, SPEND, TOLERANCE = [0.01, 0.1, 1.0], [0.05, 0.10, 0.85], 0.01


@dataclass(frozen=True)
class Certificate:
    """What CERTIFY says of one image, with probability >= 1 - alpha over its draws.

    Unless `prediction` is ABSTAIN (-1), it is what ACES answers at the image, and, if `radius` is
    above 0, at every image that is nearer than `radius` in the l2 norm.
    """

    prediction: int  # class, or ABSTAIN
    radius: float  # l2, of pixels in [0, 1]; 0 without a certificate
    route: Route  # who answered
    p_select: float  # lower bound of the probability that a draw selects the guessed network
    p_class: float  # lower bound of the probability that a draw is of the guessed class
    alpha: float
    draws: int  # made in all
    invalid: int  # of these, with NaN or infinite logits
    seed: int  # repeats the draws
    name: str = ""  # of the class

    @property
    def grey_levels(self) -> float:
        """The radius for pixels in 0..255."""
        return self.radius * GREY_LEVELS

    def __str__(self) -> str:
        confidence = f"confidence {1 - self.alpha:g}, {self.draws:,} draws"
        if self.route == Route.ABSTAIN:
            return f"abstains ({confidence})"
        reach = (
            f", certified within {floor_digits(self.radius, 4)}"
            if self.radius > 0
            else ", no radius"
        )
        return f"{self.name or f'class {self.prediction}'}{reach}, by {_WHO[self.route]} ({confidence})"


_WHO = {
    Route.CERTIFY: "the certification network",
    Route.CORE: "the core network",
    Route.AGREE: "both networks",
}


class Prediction(int):
    """What PREDICT says of one image: the class, or ABSTAIN (-1), an int that also knows how it
    came about.
    """

    alpha: float  # the probability with which it may be wrong
    draws: int
    seed: int  # repeats the draws
    name: str  # of the class

    def __new__(
        cls, prediction: int, *, alpha: float = 0.0, draws: int = 0, seed: int = 0, name: str = ""
    ):
        self = super().__new__(cls, prediction)
        self.alpha, self.draws, self.seed, self.name = alpha, draws, seed, name
        return self

    def __repr__(self) -> str:
        return f"Prediction({int(self)}, name={self.name!r}, draws={self.draws}, seed={self.seed})"

    def __str__(self) -> str:
        answer = "abstains" if self == ABSTAIN else self.name or f"class {int(self)}"
        return f"{answer} ({self.draws:,} draws)"


class ACES:
    """The composed model (Horváth et al., 2022): a smoothed network where it is selected, else the
    core network.

    Args: core: Any module from pixels in [0, 1], (N, C, H, W), to logits (N, num_classes). It sees
    images without noise. certify: The same, trained under noise. It sees noisy copies, each on its
    own. sigma: Standard deviation of the noise, in the units of the pixels. theta: The
    certification network is selected where the score is at most theta: a multiple of 1/1000 in [0,
    1]. num_classes: Number of classes. select: A module with logits (N, 2), the first of them for
    "core", whose probability is the score. Without it
            the score is the entropy of `certify`, scaled to [0, 1].
        classes: Names of the classes. shape: (C, H, W) of the images. If given, other images are
            refused. resize: To which length the shorter side of an image file is resized before the
            middle is cropped. device: `auto`, `cpu`, `cuda` or `cuda:1`. workers: How many threads
            or GPUs draw (default: all).
    """

    def __init__(
        self,
        *,
        core: nn.Module,
        certify: nn.Module,
        sigma: float,
        theta: float,
        num_classes: int,
        select: nn.Module | None = None,
        classes: Sequence[str] | None = None,
        shape: tuple[int, int, int] | None = None,
        resize: int | None = None,
        device: str = "auto",
        workers: int | None = None,
    ):
        self.networks = {"core": core, "certify": certify} | (
            {"select": select} if select is not None else {}
        )
        for role, network in self.networks.items():
            if not isinstance(network, nn.Module):
                raise InputError(
                    f"{role} is a {type(network).__name__}: expected a torch module from images to logits"
                )
        if classes is not None and len(classes) != num_classes:
            raise InputError(
                f"classes has {len(classes)} names: expected num_classes={num_classes}"
            )
        composition.places_of(theta)  # refuses a theta off the grid
        self.sigma, self.theta, self.num_classes = float(sigma), float(theta), int(num_classes)
        self.classes = None if classes is None else [str(name) for name in classes]
        self.shape, self.resize = None if shape is None else tuple(shape), resize
        self.device, self.workers = device, workers

    def certify(
        self,
        x: np.ndarray | Tensor,
        *,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        adaptive: bool = False,
        radius: float | None = None,
        multiplicity: str = "iut",
        seed: int | None = None,
        progress: bool = False,
    ) -> list[Certificate]:
        """CERTIFY (Algorithm 1): with probability >= 1 - alpha for each image, its certificate
        holds.

        Args: x: Images: (N, C, H, W) floats in [0, 1], or (N, H, W, C) or (N, C, H, W) uint8. n0:
        Draws that fix the guesses. n: Draws that bound their probabilities; at most so many if
        `adaptive`. alpha: The total failure probability of one certificate. adaptive: Stop an image
        early: when more draws could hardly enlarge its radius, or, with `radius`, when the
                answer is sure.
            radius: With `adaptive`, ask only whether an image is certified within this radius. Its
                certificate then has this radius, or abstains. multiplicity: `iut`, or `bonferroni`
                as in the paper. A question about one `radius` is always answered by the
                intersection-union argument. seed: Repeats the draws of an earlier call with the
                same images; by default they are fresh. progress: Show a progress bar.

        Returns:
            One certificate an image.
        """
        composition.check_multiplicity(multiplicity)
        plan = DrawPlan(sigma=self.sigma, n0=n0, n=n, seed=_seed(seed))
        if radius is not None:
            if not adaptive:
                raise InputError(
                    f"radius={radius} asks a question that is answered as soon as it is sure: set "
                    "adaptive=True, or leave radius out to have the largest that n draws can certify"
                )
            images = self._images(x, n=n, alpha=alpha)
            return self._certify_at(radius, images, plan, alpha=alpha, progress=progress)
        images = self._images(x, n=n, alpha=alpha, spend=SPEND[-1] if adaptive else 1.0)
        core = self._core_classes(images)
        if adaptive:
            plan = _with_looks(plan, alpha=alpha, theta=self.theta)
        counts = self._draw(sampling.sample, images, plan, progress=progress)
        outcomes = composition.certify(
            counts,
            core,
            sigma=self.sigma,
            alpha=alpha,
            thetas=[self.theta],
            multiplicity=multiplicity,
        )
        return self._certificates(outcomes, counts, alpha=alpha)

    def predict(
        self,
        x: np.ndarray | Tensor,
        *,
        n: int = 10_000,
        alpha: float = 0.001,
        adaptive: bool = False,
        seed: int | None = None,
        progress: bool = False,
    ) -> list[Prediction]:
        """PREDICT (Algorithm 4): with probability >= 1 - alpha for each image, the answer is ACES'
        class, or ABSTAIN.

        Args: x: Images, as for `certify`. n: Draws; at most so many if `adaptive`. alpha: The total
        failure probability of one prediction. adaptive: Stop an image as soon as its class is sure.
        seed: Repeats the draws of an earlier call with the same images; by default they are fresh.
        progress: Show a progress bar.

        Returns:
            One int an image, ABSTAIN (-1) where the draws do not suffice.
        """
        images = self._images(x, n=n, alpha=alpha)
        core, seed = self._core_classes(images), _seed(seed)
        if adaptive:
            n0 = min(N0_PREDICT, n // 2)
            if log_evidence(n - n0, n - n0, p0=0.5) < -np.log(alpha / 2):
                raise InputError(
                    f"n={n} is too small for alpha={alpha:g}: {n0} draws fix the guesses, and the rest cannot make "
                    "an answer sure; take more draws"
                )
            plan = DrawPlan(sigma=self.sigma, n0=n0, n=n - n0, seed=seed)
            answers = self._draw(
                sampling.predict,
                images,
                plan,
                progress=progress,
                core=core,
                theta=self.theta,
                alpha=alpha,
            )
            found = [(answer.prediction, answer.draws) for answer in answers]
        else:
            plan = DrawPlan(sigma=self.sigma, n0=0, n=0, n_predict=n, seed=seed)
            counts = self._draw(sampling.sample, images, plan, progress=progress)
            classes = composition.predict(counts, core, alpha=alpha, thetas=[self.theta])[:, 0]
            found = zip(classes.tolist(), counts.draws.sum(axis=0).tolist())
        return [
            Prediction(label, alpha=alpha, draws=draws, seed=seed, name=self._name(label))
            for label, draws in found
        ]

    def at(self, *, theta: float) -> "ACES":
        """The same model at another theta."""
        composition.places_of(theta)
        other = copy.copy(self)
        other.theta = float(theta)
        return other

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder: safetensors and one YAML."""
        saved.write_folder(
            folder,
            self.networks,
            sigma=self.sigma,
            theta=self.theta,
            num_classes=self.num_classes,
            classes=self.classes,
            shape=list(self.shape) if self.shape else None,
            resize=self.resize,
        )

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        core: nn.Module | None = None,
        certify: nn.Module | None = None,
        select: nn.Module | None = None,
        device: str = "auto",
        workers: int | None = None,
    ) -> "ACES":
        """The model that `save` wrote.

        A network from `aces.networks.build` is built again. A module of your own class is not: pass
        one, and it is filled.
        """
        own = {"core": core, "certify": certify, "select": select}
        networks, description = saved.read_folder(
            folder, {role: it for role, it in own.items() if it is not None}
        )
        return cls(**networks, **description, device=device, workers=workers)

    @classmethod
    def from_pipeline(
        cls,
        folder: str | Path = ".",
        *,
        theta: float = 0.5,
        device: str = "auto",
        workers: int | None = None,
    ) -> "ACES":
        """The networks that the pipeline in `folder` trained, with its sigma."""
        settings = params.load(Path(folder) / "params.yaml")
        roles = ["core", "certify"] + (["select"] if settings.select.score == "network" else [])
        networks = {
            role: load_model(Path(folder) / "models" / f"{role}.safetensors") for role in roles
        }
        info = data.info(settings.dataset.name)
        return cls(
            **networks,
            sigma=settings.sigma,
            theta=theta,
            num_classes=info.num_classes,
            classes=info.classes,
            shape=info.shape,
            resize=info.resize,
            device=device,
            workers=workers,
        )

    def _draw(self, draw, images: Images, plan: DrawPlan, *, progress: bool, **question):
        """Calls a function of the sampler with this model's networks and runtime."""
        return draw(
            self.networks["certify"],
            images,
            plan,
            num_classes=self.num_classes,
            runtime=Runtime(device=self.device, workers=self.workers, progress=progress),
            select=self.networks.get("select"),
            **question,
        )

    def _images(self, x, *, n: int, alpha: float, spend: float = 1.0) -> Images:
        """The images, after everything that can be checked before any work; n draws have the share
        `spend` of alpha.
        """
        check_alpha(alpha)
        needed = params.needed_draws(alpha * spend)
        if n < needed:
            raise InputError(
                f"n={n} is too small for alpha={alpha:g}: every answer would be an abstention; take at "
                f"least {needed}"
            )
        images = Images.of(x)
        if self.shape is not None and images.shape != self.shape:
            raise InputError(
                f"images of shape {images.shape}: this model takes (C, H, W) = {self.shape}"
            )
        return images

    def _core_classes(self, images: Images) -> np.ndarray:
        """(N,) the core network's classes of the images without noise."""
        return sampling.classes_of(self.networks["core"], images, num_classes=self.num_classes)

    def _certify_at(
        self, radius: float, images: Images, plan: DrawPlan, *, alpha: float, progress: bool
    ) -> list[Certificate]:
        answers = self._draw(
            sampling.certify_at,
            images,
            plan,
            progress=progress,
            radius=radius,
            theta=self.theta,
            alpha=alpha,
        )
        shown = float(
            ndtr(radius / self.sigma)
        )  # what both probabilities exceed where the radius is certified
        return [
            Certificate(
                prediction=it.prediction,
                radius=it.radius,
                route=it.route,
                p_select=shown * (it.radius > 0),
                p_class=shown * (it.radius > 0),
                alpha=alpha,
                draws=it.draws,
                invalid=it.invalid,
                seed=plan.seed,
                name=self._name(it.prediction),
            )
            for it in answers
        ]

    def _certificates(
        self, outcomes: composition.Outcomes, counts: Counts, *, alpha: float
    ) -> list[Certificate]:
        columns = zip(
            outcomes.prediction[:, 0].tolist(),
            outcomes.radius[:, 0].tolist(),
            outcomes.route[:, 0].tolist(),
            outcomes.p_select[:, 0].tolist(),
            outcomes.p_class[:, 0].tolist(),
            counts.draws.sum(axis=0).tolist(),
            counts.invalid.sum(axis=0).tolist(),
        )
        return [
            Certificate(
                prediction=prediction,
                radius=radius,
                route=Route(route),
                p_select=p_select,
                p_class=p_class,
                alpha=alpha,
                draws=draws,
                invalid=invalid,
                seed=counts.settings.seed,
                name=self._name(prediction),
            )
            for prediction, radius, route, p_select, p_class, draws, invalid in columns
        ]

    def _name(self, label: int) -> str:
        return self.classes[label] if self.classes is not None and label != ABSTAIN else ""


def _seed(seed: int | None) -> int:
    """Fresh by default: the answers of two calls are then independent."""
    return secrets.randbits(53) if seed is None else seed


def _with_looks(plan: DrawPlan, *, alpha: float, theta: float) -> DrawPlan:
    """The plan with early stopping. Looks are at the ends of chunks: small ones for a small n, but
    not so small that they cost time.
    """
    adaptive = params.Adaptive(
        enabled=True, alpha=alpha, looks=LOOKS, spend=SPEND, tolerance=TOLERANCE, thetas=[theta]
    )
    return replace(plan, adaptive=adaptive, chunk=int(np.clip(plan.n // 10, 50, 1000)))
