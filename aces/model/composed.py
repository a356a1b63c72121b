"""ACES as a model: any torch networks in, certificates out.

    model = aces.ACES(core=core, certify=certify, sigma=0.25, theta=0.5, num_classes=10)
    certificate, = model.certify("photo.png")
    certificate.prediction, certificate.radius, certificate.route

The networks are the paper's: `core` answers accurately and without a radius, `certify` answers
under noise. Which of the two speaks for an image is decided by a rule from the draws of `certify`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import nn

from aces import grid, sampling
from aces import rule as rules
from aces.errors import InputError
from aces.files import digest_of
from aces.model import checks, pipeline
from aces.model import folder as saved
from aces.model.answers import Writer, prediction_routes
from aces.model.certificates import Certificate, Prediction
from aces.model.inputs import ARRAYS, as_images
from aces.model.plans import Planner
from aces.networks import fingerprint
from aces.networks.resolution import own_size
from aces.rule.calibration import Calibration
from aces.rule.choice import Choice
from aces.runtime import Runtime
from aces.sampling import DrawPlan, Images

if TYPE_CHECKING:
    from aces.model.inputs import Source

Result = TypeVar("Result")


class ACES:
    """The composed model (Horváth et al., 2022): a smoothed network where it is selected, else the
    core network.

    Args:
        core: Any module from pixels in [0, 1], (N, C, H, W), to logits (N, num_classes). It sees
            images without noise.
        certify: The same, trained under noise. It sees noisy copies, each on its own.
        sigma: Standard deviation of the noise, in the units of the pixels.
        theta: How much doubt (or, with the paper's rule, which score) of a draw is accepted: a
            multiple of 1/1000 in [0, 1]. A larger theta leaves more images to `certify`.
        num_classes: Number of classes.
        select: For the paper's rule: a module with logits (N, 2), the first of them for "core",
            whose probability is the score. Without it the score is the entropy of `certify`.
        rule: `confident` (one event: the class, and little doubt) or `paper` (Algorithm 1). The
            default is `confident`, and `paper` where there is a `select`.
        noise: `exact` (noise on a lattice, so that no rounding betrays the image), or `float`.
        precision: In which the certification network runs.
        classes: Names of the classes.
        shape: (C, H, W) of the images. If given, other images are refused, and files can be read.
        resize: To which length the shorter side of an image file is resized before the middle is
            cropped.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        workers: How many threads or GPUs draw (default: all).
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
        rule: str | None = None,
        noise: str = "exact",
        precision: str = "float32",
        classes: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        resize: int | None = None,
        device: str = "auto",
        workers: int | None = None,
    ):
        self.networks = {"core": core, "certify": certify}
        if select is not None:
            self.networks["select"] = select
        checks.check_networks(self.networks)
        checks.check_classes(classes, num_classes)
        self.rule = rules.rule_of(rule, selects=select is not None)
        checks.check_theta(theta)
        self.sigma, self.theta, self.num_classes = float(sigma), float(theta), int(num_classes)
        self.noise, self.precision = noise, precision
        self.classes = None if classes is None else [str(name) for name in classes]
        self.shape = None if shape is None else checks.as_shape(shape)
        self.resize = checks.as_resize(resize)
        self.runtime = Runtime(device=device, workers=workers, progress=False)
        self._planner = Planner(self.sigma, noise=noise, precision=precision)

    # ---------------------------------------------------------------- answers

    def certify(
        self,
        x: "Source",
        *,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        adaptive: bool = False,
        radius: float | None = None,
        multiplicity: str = "iut",
        seed: int | None = None,
        index: Sequence[int] | None = None,
        progress: bool = False,
    ) -> list[Certificate]:
        """CERTIFY: with probability at least 1 - alpha for each image, its certificate holds.

        Args:
            x: Images: (N, C, H, W) floats in [0, 1], (N, H, W, C) or (N, C, H, W) uint8, a path, a
                PIL image, or a list of paths or PIL images.
            n0: Draws that fix the guesses.
            n: Draws that bound their probabilities; at most so many if `adaptive`.
            alpha: The total failure probability of one certificate.
            adaptive: Stop an image early: when more draws could hardly enlarge its radius, or, with
                `radius`, when the answer is sure.
            radius: With `adaptive`, ask only whether an image is certified within this radius. Its
                certificate then has this radius, or abstains.
            multiplicity: For the paper's rule: `iut`, or `bonferroni` as in the paper. A question
                about one `radius` is always answered by the intersection-union argument.
            seed: Repeats the draws of an earlier call with the same images; by default they are
                fresh.
            index: One whole number for each image, no two the same: with the seed they fix its
                draws. The default is 0, 1, 2, ...
            progress: Show a progress bar.

        Returns:
            One certificate per image.
        """
        if radius is not None and not adaptive:
            raise InputError(
                f"radius={radius} asks a question that is answered as soon as it is sure: set "
                "adaptive=True, or leave radius out to have the largest that n draws can certify"
            )
        ask: dict[str, Any] = {"n0": n0, "n": n, "alpha": alpha, "seed": seed}
        if adaptive and radius is None:
            plan = self._planner.certify_in_looks(theta=self.theta, **ask)
        else:
            plan = self._planner.certify(**ask)
        images = self._images(x)
        how: dict[str, Any] = {"index": index, "progress": progress}
        writer = self._writer(images, alpha=alpha)
        if radius is not None:
            question: dict[str, Any] = {"radius": radius, "theta": writer.theta}
            question |= {"alpha": alpha, "rule": writer.rule}
            answers = self._draw(sampling.certify_at, images, plan, **how, **question)
            return writer.certificates_at(answers, radius=radius)
        core = self._core_classes(x, images)
        counts = self._draw(sampling.sample, images, plan, **how)
        outcomes = rules.certify(
            counts,
            core,
            alpha=alpha,
            thetas=[writer.theta],
            rule=writer.rule,
            multiplicity=multiplicity,
        )
        return writer.certificates(outcomes, counts)

    def predict(
        self,
        x: "Source",
        *,
        n: int = 10_000,
        alpha: float = 0.001,
        adaptive: bool = False,
        seed: int | None = None,
        index: Sequence[int] | None = None,
        progress: bool = False,
    ) -> list[Prediction]:
        """PREDICT: with probability at least 1 - alpha for each image, the answer is ACES' class,
        or ABSTAIN.

        Args:
            x: Images, as for `certify`.
            n: Draws; at most so many if `adaptive`.
            alpha: The total failure probability of one prediction.
            adaptive: Stop an image as soon as its class is sure.
            seed: Repeats the draws of an earlier call with the same images; by default they are
                fresh.
            index: As for `certify`.
            progress: Show a progress bar.

        Returns:
            One int per image, ABSTAIN (-1) where the draws do not suffice.
        """
        planned = self._planner.predict_early if adaptive else self._planner.predict
        plan = planned(n=n, alpha=alpha, seed=seed)
        images = self._images(x)
        core = self._core_classes(x, images)
        how: dict[str, Any] = {"index": index, "progress": progress}
        writer = self._writer(images, alpha=alpha)
        if adaptive:
            question: dict[str, Any] = {"core": core, "theta": writer.theta}
            question |= {"alpha": alpha, "rule": writer.rule}
            return writer.predictions_of(
                self._draw(sampling.predict, images, plan, **how, **question)
            )
        counts = self._draw(sampling.sample, images, plan, **how)
        ask: dict[str, Any] = {"alpha": alpha, "thetas": [writer.theta], "rule": writer.rule}
        labels = rules.predict(counts, core, **ask)[:, 0]
        routes = prediction_routes(labels, rules.certify(counts, core, **ask), counts.guess, core)
        return writer.predictions(labels, routes, counts)

    def calibrate(
        self,
        x: "Source",
        labels: Sequence[int] | np.ndarray,
        *,
        loss: float = 0.02,
        confidence: float = 0.95,
        n: int = 2000,
        alpha: float = 0.001,
        step: float = 0.01,
        seed: int | None = None,
        progress: bool = False,
    ) -> Calibration:
        """Set theta to the largest that loses at most `loss` of the core network's accuracy, with
        probability at least `confidence` over these images; return it with its evidence.

        With too few images the message says how many are needed, and theta stays what it was. If
        not even the smallest theta can be shown to keep the promise, theta becomes 0.

        Args:
            x: Images that nothing is reported on, as for `certify`.
            labels: Their true classes.
            loss: The share of images that may be lost, such as 0.02 for two points.
            confidence: With which the loss is at most that.
            n: Draws per image, at most: fewer where more could not change the choice. An image on
                which PREDICT abstains counts as wrong.
            alpha: The failure probability of PREDICT.
            step: The thetas that are tried are its multiples.
            seed: Repeats the draws of an earlier call.
            progress: Show a progress bar.
        """
        if not grid.is_step(step):
            raise InputError(f"step={step}: expected a number such as 0.01, which divides 1")
        plan = self._planner.calibrate(n=n, alpha=alpha, seed=seed)
        images, thetas = self._images(x), grid.thetas(step)
        labels = checks.as_labels(labels, images=len(images), num_classes=self.num_classes)
        core = self._core_classes(x, images)
        choice = Choice(
            partial(rules.predict_from, alpha=alpha, thetas=thetas, rule=self.rule),
            core,
            labels,
            thetas=thetas,
            loss=loss,
            confidence=confidence,
        )
        self._draw(sampling.sample, images, plan, progress=progress, enough=choice.settled)
        found = choice.calibration()
        self.theta = found.theta
        return found

    # ---------------------------------------------------------------- variants of this model

    def at(self, *, theta: float) -> "ACES":
        """The same model at another theta."""
        checks.check_theta(theta)
        other = copy.copy(self)
        other.theta = float(theta)
        return other

    def by(self, *, rule: str) -> "ACES":
        """The same model with another rule: `confident` or `paper`."""
        other = copy.copy(self)
        other.rule = rules.rule_of(rule, selects="select" in self.networks)
        return other

    def running(self, runtime: Runtime) -> "ACES":
        """The same model, run in another way: on another device, or with fewer workers."""
        other = copy.copy(self)
        other.runtime = runtime
        return other

    @property
    def digest(self) -> str:
        """sha256 of the weights of all networks, in hex."""
        return digest_of(*(fingerprint(self.networks[role]) for role in sorted(self.networks)))

    # ---------------------------------------------------------------- files

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder: safetensors and one YAML."""
        saved.write_folder(
            folder,
            self.networks,
            sigma=self.sigma,
            theta=self.theta,
            rule=self.rule,
            noise=self.noise,
            precision=self.precision,
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
        found = saved.read_folder(folder, {role: it for role, it in own.items() if it is not None})
        return cls(**found, device=device, workers=workers)

    @classmethod
    def from_pipeline(
        cls,
        folder: str | Path = ".",
        *,
        theta: float | None = None,
        device: str = "auto",
        workers: int | None = None,
    ) -> "ACES":
        """The model of the pipeline in `folder`: its networks, sigma, rule, noise and precision, at
        its working point unless a theta is given.
        """
        found = pipeline.read(Path(folder), theta=theta)
        return cls(**found, device=device, workers=workers)

    # ---------------------------------------------------------------- in words

    def __repr__(self) -> str:
        lines = [f"ACES(sigma={self.sigma:g}, theta={self.theta:g}, rule={self.rule!r})"]
        for role, network in self.networks.items():
            recipe = getattr(network, "recipe", None) or {}
            kind = recipe.get("arch", type(network).__qualname__)
            weights = sum(parameter.numel() for parameter in network.parameters())
            size = f"{weights:,} weights" if weights else "no weights to train"
            lines.append(f"  {role}: {kind}, {size}")
        images = "" if self.shape is None else f" of (C, H, W) = {self.shape}"
        lines.append(f"  images{images}, {self.num_classes} classes")
        lines.append(f"  noise: {self.noise}, precision: {self.precision}")
        return "\n".join(lines)

    # ---------------------------------------------------------------- parts

    def _draw(
        self,
        draw: Callable[..., Result],
        images: Images,
        plan: DrawPlan,
        *,
        progress: bool,
        **question: Any,
    ) -> Result:
        """Call a function of the sampler with this model's networks and runtime."""
        return draw(
            self.networks["certify"],
            images,
            plan,
            num_classes=self.num_classes,
            runtime=replace(self.runtime, progress=progress),
            select=self.networks.get("select"),
            **question,
        )

    def _images(self, x: "Source") -> Images:
        return as_images(x, shape=self.shape, resize=self.resize)

    def _writer(self, images: Images, *, alpha: float) -> Writer:
        core = fingerprint(self.networks["core"])
        return Writer(images, self.theta, self.rule, alpha, self.classes, core)

    def _core_classes(self, x: "Source", images: Images) -> np.ndarray:
        """(N,) the core network's classes of the images without noise. A core network with a size
        of its own sees files at that size, as in the pipeline, and enlarges arrays.
        """
        core = self.networks["core"]
        size = own_size(core)
        if size is not None and not isinstance(x, ARRAYS):
            images = as_images(x, shape=(images.shape[0], size, size), resize=None)
        return sampling.classes_of(core, images, num_classes=self.num_classes)
