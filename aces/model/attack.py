"""Attacks on certified images: how far the certificates are from what an attacker achieves.

For each certified image the attacks look for an image at a given multiple of the certified radius
where ACES answers with another class. They know everything: both networks, sigma, theta, the rule.

- `class`: projected gradient descent (PGD, Madry et al. 2018) against the smoothed class. The
  gradient is that of the expectation over the noise, estimated by a few draws per step, as in
  SmoothAdv (Salman et al. 2019).
- `selection`: the same against the selection, so that the core network answers. At the same time
  the core network is pushed to another class, because only then the answer changes.
- `random`: directions drawn uniformly from the sphere.

Whether an attack succeeded is decided by PREDICT with fresh draws, never by the attack's own
estimate. Inside the radius no attack may succeed. A success there is confirmed with a far smaller
alpha before it is called a breach, because PREDICT itself may be wrong with probability alpha.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from aces.errors import InputError
from aces.model.certificates import Certificate
from aces.model.composed import ACES
from aces.sampling.images import Images, as_floats
from aces.sampling.lattice import lattice
from aces.sampling.tally import entropy

SCALES = (0.5, 0.98, 1.5, 2.0, 3.0, 4.0)  # multiples of the certified radius
CONFIRM_ALPHA, CONFIRM_DRAWS = 1e-9, 100_000  # of PREDICT, before a breach is reported
CORE_WEIGHT = 0.5  # of the core network's gradient beside that of the selection
STEP = 2.5  # all steps together reach this many times the radius
ROUNDINGS = 4  # attempts to bring a move onto the lattice without leaving the ball
GROUP = 8  # images whose gradients are computed together

Objective = Callable[[Tensor, Tensor], Tensor]  # logits (m, N, K), classes (N,) -> (N,)


@dataclass(frozen=True)
class Effort:
    """How hard the attacks try."""

    steps: int = 20  # of gradient descent
    draws: int = 32  # of noise for the gradient of one step
    directions: int = 16  # random ones
    n: int = 4000  # draws of PREDICT for each attacked image, at most
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "draws", "directions", "n"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise InputError(f"{name}={value!r}: expected a whole number of at least 1")


@dataclass(frozen=True)
class Trial:
    """One attacked image."""

    image: int  # position among the images that were given
    attack: str  # class, selection or random
    scale: float  # multiple of the certified radius that it may move by
    distance: float  # l2 that it did move by
    answer: int  # what PREDICT says there
    changed: bool  # whether that is another class; an abstention is none


@dataclass(frozen=True)
class Attacked:
    """What was attacked, and what came out of it."""

    certificates: list[Certificate]  # of all images
    labels: np.ndarray | None  # (N,) true classes
    scales: tuple[float, ...]
    trials: list[Trial] = field(default_factory=list)

    @property
    def targets(self) -> list[int]:
        """The certified images: those with a radius above 0."""
        return [i for i, it in enumerate(self.certificates) if it.radius > 0]

    @property
    def breaches(self) -> list[Trial]:
        """Trials that changed the answer inside the certified radius. There must be none."""
        return [
            it
            for it in self.trials
            if it.changed and it.distance < self.certificates[it.image].radius
        ]

    def by_scale(self) -> list[dict]:
        """One row for each multiple of the radius: images attacked, and how many of them each
        attack changed.
        """
        rows = []
        for scale in self.scales:
            trials = [it for it in self.trials if it.scale == scale]
            changed = {
                attack: len({it.image for it in trials if it.changed and it.attack == attack})
                for attack in ATTACKS
            }
            broken = {it.image for it in trials if it.changed}
            row = {"scale": scale, "images": len(self.targets)} | changed
            rows.append(row | {"any": len(broken)})
        return rows

    def curve(self, *, points: int = 41) -> list[dict]:
        """Certified and empirical accuracy over the l2 radius r, among all images that were given.

        Certified: the answer is right and certified within r. Empirical: the answer is right and
        no attack of size r or less changed it. Without labels every answer counts as right. An
        image without a radius is not attacked: it counts in neither, so that both curves start at
        the same point.
        """
        right = [
            it.radius > 0 and (self.labels is None or it.prediction == self.labels[i])
            for i, it in enumerate(self.certificates)
        ]
        radius = np.array([it.radius for it in self.certificates])
        broken = np.full(len(radius), np.inf)
        for it in self.trials:
            if it.changed:
                broken[it.image] = min(broken[it.image], it.distance)
        reach = radius.max(initial=0.0) * max(self.scales)
        return [
            {
                "radius": float(r),
                "certified_accuracy": float(np.mean(right & (radius > r))),
                "empirical_accuracy": float(np.mean(right & (broken > r))),
            }
            for r in np.linspace(0.0, reach, points)
        ]


def attack(
    model: ACES,
    x: np.ndarray | Tensor,
    certificates: Sequence[Certificate],
    *,
    labels: np.ndarray | None = None,
    scales: Sequence[float] = SCALES,
    effort: Effort = Effort(),
    gradients: nn.Module | None = None,
    advance: Callable[[int], None] = lambda images: None,
) -> Attacked:
    """Attack the certified images among `x` at multiples of their radius.

    x: images as for `ACES.certify`, whose certificates are given; labels: (N,) their true classes;
    gradients: the network whose gradients the attacks follow, by default the certification network;
    an int8 network has none, and the float32 network that it was made from stands in for it;
    advance: is called with the number of images that one more attack is through with.
    """
    if not scales or not all(np.isfinite(scale) and scale > 0 for scale in scales):
        raise InputError(f"scales={list(scales)}: expected numbers above 0")
    images = Images.of(x)
    if len(images) != len(certificates):
        raise InputError(
            f"{len(certificates)} certificates for {len(images)} images: expected one for each, "
            "as ACES.certify gives them"
        )
    result = Attacked(list(certificates), labels, tuple(sorted(scales)))
    # A certificate speaks of the image on the lattice, which for uint8 images is the image itself.
    steps = lattice(model.sigma).scale
    pixels = torch.round(as_floats(images.pixels) * steps) / steps
    followed = gradients or model.networks["certify"]
    check_differentiable(followed, pixels)
    for group in _groups(result.targets):
        target = _Target(model, followed, pixels[group], [certificates[i] for i in group], group)
        for scale in result.scales:
            for name, moved in target.attacked(scale, effort):
                result.trials.extend(_trials(target, name, scale, moved, effort))
                advance(len(group))
    return result


ATTACKS = ("class", "selection", "random")


@dataclass(frozen=True)
class _Target:
    """Some certified images of a model: x (N, C, H, W) in [0, 1]."""

    model: ACES
    gradients: nn.Module
    x: Tensor
    certificates: list[Certificate]
    positions: list[int]

    @property
    def steps(self) -> int:
        """Lattice steps from 0 to 1. Attacked images lie on the lattice, so that exact noise does
        not round them.
        """
        return lattice(self.model.sigma).scale

    @property
    def label(self) -> Tensor:
        return torch.tensor([it.prediction for it in self.certificates])

    def reach(self, scale: float) -> Tensor:
        """(N, 1, 1, 1) how far each image may move: strictly less than the radius at scale 1."""
        radius = torch.tensor([it.radius for it in self.certificates], dtype=torch.float64)
        return (scale * radius * (1 - 1e-4)).float()[:, None, None, None]

    def attacked(self, scale: float, effort: Effort) -> Iterator[tuple[str, Tensor]]:
        """The name of each attack with the images it made."""
        generator = torch.Generator().manual_seed(effort.seed)
        reach = self.reach(scale)
        for name, objective, core in (
            ("class", push_class, 0.0),
            ("selection", _selection_objective(self.model), CORE_WEIGHT),
        ):
            yield name, self._descend(objective, reach, effort, generator, core=core)
        for _ in range(effort.directions):
            direction = torch.randn(self.x.shape, generator=generator)
            yield "random", within(self.x, reach * _unit(direction), reach, steps=self.steps)

    def _descend(
        self,
        objective: Objective,
        reach: Tensor,
        effort: Effort,
        generator: torch.Generator,
        *,
        core: float,
    ) -> Tensor:
        """Projected gradient ascent of the objective, beside that of the core's loss."""
        moved = torch.zeros_like(self.x)
        for _ in range(effort.steps):
            gradient = _unit(self._smoothed_gradient(objective, moved, effort, generator))
            if core:
                gradient = gradient + core * _unit(self._core_gradient(moved))
            step = STEP * reach / effort.steps * _unit(gradient)
            moved = projected(self.x, moved + step, reach)
        return within(self.x, moved, reach, steps=self.steps)

    def _smoothed_gradient(
        self, objective: Objective, moved: Tensor, effort: Effort, generator: torch.Generator
    ) -> Tensor:
        moved = moved.clone().requires_grad_(True)
        noise = torch.randn((effort.draws, *moved.shape), generator=generator)
        noisy = (self.x + moved + self.model.sigma * noise).flatten(0, 1)
        logits = self.gradients.eval()(noisy).unflatten(0, noise.shape[:2])
        return _gradient(objective(logits, self.label), moved)

    def _core_gradient(self, moved: Tensor) -> Tensor:
        moved = moved.clone().requires_grad_(True)
        logits = self.model.networks["core"].eval()(self.x + moved)
        return _gradient(functional.cross_entropy(logits, self.label, reduction="none"), moved)


def push_class(logits: Tensor, label: Tensor) -> Tensor:
    """-log of the smoothed probability of the certified class."""
    smoothed = logits.softmax(dim=2).mean(dim=0)
    return -smoothed.gather(1, label[:, None]).clamp_min(1e-30).log()[:, 0]


def push_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The mean entropy: where it is above theta, the paper's rule selects the core network."""
    return entropy(logits.flatten(0, 1)).unflatten(0, logits.shape[:2]).mean(dim=0)


def push_doubt(logits: Tensor, label: Tensor, *, least: float) -> Tensor:
    """How far the log-odds of the certified class stay below `least`, which a draw needs in order
    to count for the confident rule. Draws that are far below it pull no more.
    """
    own = logits.gather(2, label.expand(len(logits), -1)[:, :, None])[:, :, 0]
    rivals = logits.scatter(2, label.expand(len(logits), -1)[:, :, None], -torch.inf)
    odds = own - rivals.logsumexp(dim=2)
    return functional.softplus(least - odds).clamp_max(10.0).mean(dim=0)


def _selection_objective(model: ACES) -> Objective:
    if model.rule == "confident":
        return lambda logits, label: push_doubt(
            logits, label, least=least_odds(model.theta, logits.shape[2])
        )
    return push_entropy


def least_odds(theta: float, num_classes: int) -> float:
    """log(p / (1 - p)) of the draws whose doubt is theta: see `aces.sampling.tally.doubts`."""
    surprise = 1 / max(theta, 1e-3) - 1 + math.log(num_classes / (num_classes - 1))
    return surprise + math.log(-math.expm1(-surprise))  # log(exp(surprise) - 1)


def within(x: Tensor, moved: Tensor, reach: Tensor, *, steps: int) -> Tensor:
    """(N, C, H, W) x moved by at most `reach`, in [0, 1], on the lattice of so many steps.

    Rounding to the lattice lengthens a move a little, so it is shortened and rounded again until it
    fits; if it never does, rounding towards x shortens it for sure.
    """
    base, moved = torch.round(x * steps), projected(x, moved, reach) * steps
    shorter = torch.ones_like(reach)
    for _ in range(ROUNDINGS):
        found = torch.round(moved * shorter)
        norm = _norm(found) / steps
        shorter = torch.where(norm > reach, shorter * (reach / norm.clamp_min(1e-12)), shorter)
    found = torch.where(norm > reach, torch.trunc(moved * shorter.clamp_max(1)), found)
    return (base + found) / steps


def projected(x: Tensor, moved: Tensor, reach: Tensor) -> Tensor:
    """The move, shortened so that x + moved stays in [0, 1] and within `reach`."""
    moved = (x + moved).clamp(0, 1) - x
    return moved * (reach / _norm(moved).clamp_min(1e-12)).clamp_max(1)


def _trials(
    target: _Target, name: str, scale: float, moved: Tensor, effort: Effort
) -> Iterator[Trial]:
    model, inputs = target.model, moved.clamp(0, 1)
    answers = model.predict(inputs, n=effort.n, adaptive=True, seed=effort.seed)
    distances = (inputs.double() - target.x.double()).flatten(1).norm(dim=1)
    for i, (answer, certificate) in enumerate(zip(answers, target.certificates, strict=True)):
        distance = distances[i].item()
        changed = not answer.abstains and answer != certificate.prediction
        if changed and distance < certificate.radius:
            again = model.predict(
                inputs[i : i + 1], n=CONFIRM_DRAWS, alpha=CONFIRM_ALPHA, adaptive=True
            )[0]
            changed = not again.abstains and again != certificate.prediction
        yield Trial(target.positions[i], name, scale, distance, int(answer), changed)


def _groups(targets: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(targets), GROUP):
        yield targets[start : start + GROUP]


def _unit(vectors: Tensor) -> Tensor:
    """Each image scaled to l2 norm 1; a vanishing one stays 0."""
    return vectors / _norm(vectors).clamp_min(1e-12)


def _norm(vectors: Tensor) -> Tensor:
    """(N, 1, 1, 1) the l2 norm of each image."""
    return vectors.flatten(1).norm(dim=1)[:, None, None, None]


def _gradient(objective: Tensor, moved: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(objective.sum(), moved)
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def check_differentiable(network: nn.Module, x: Tensor) -> None:
    """InputError for a network without gradients, such as an int8 one. x: (N, C, H, W)."""
    with torch.enable_grad():
        if not network.eval()(x[:1].clone().requires_grad_(True)).requires_grad:
            raise InputError(
                "the certification network has no gradients: attack the float32 network that it "
                "was made from"
            )
