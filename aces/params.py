"""Every number a result depends on: `params.yaml` as frozen dataclasses, validated when loaded.

The dataclasses mirror the file key by key, so an unknown, missing or mistyped key is found by name.
What changes only the speed (device, workers, engine) is not here: see `aces.runtime`.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import yaml

from aces.errors import InputError

DATASETS = ("cifar10", "imagenet", "digits")
METHODS = ("gaussian", "smoothadv", "macer", "consistency")
MECHANISMS = ("entropy", "network")
MULTIPLICITIES = ("iut", "bonferroni")
PRECISIONS = ("float32", "float16", "bfloat16")
SCHEDULES = ("one-cycle", "step")
ATTACKS = ("pgd", "ddn")
NO_CHECKPOINT = "checkpoints/none"
GRID = 1000  # thetas lie on i / GRID, the bins of the counts


def _check(name: str, value, condition: bool, expected: str) -> None:
    if not condition:
        raise InputError(f"{name}={value!r}: expected {expected}")


def _check_one_of(name: str, value, choices: tuple) -> None:
    _check(name, value, value in choices, "one of " + ", ".join(choices))


def _check_positive(section: str, **values) -> None:
    for name, value in values.items():
        _check(f"{section}.{name}", value, value > 0, "a number above 0")


@dataclass(frozen=True)
class Dataset:
    name: str
    stride: int  # every stride-th test image is evaluated

    def __post_init__(self):
        _check_one_of("dataset.name", self.name, DATASETS)
        _check_positive("dataset", stride=self.stride)


@dataclass(frozen=True)
class Train:
    """How a network is trained: SGD with momentum, on one schedule."""

    epochs: int
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    schedule: str  # one-cycle: up to lr and down to 0; step: lr * 0.1 at each milestone
    milestones: list[int]  # epochs, for the schedule `step`

    def __post_init__(self):
        _check_positive("train", epochs=self.epochs, batch=self.batch, lr=self.lr)
        _check("train.momentum", self.momentum, 0 <= self.momentum < 1, "a number in [0, 1)")
        _check(
            "train.weight_decay",
            self.weight_decay,
            self.weight_decay >= 0,
            "a number of at least 0",
        )
        _check_one_of("train.schedule", self.schedule, SCHEDULES)
        _check(
            "train.milestones",
            self.milestones,
            self.milestones == sorted(set(self.milestones)),
            "epochs in ascending order",
        )


@dataclass(frozen=True)
class Core:
    arch: str
    checkpoint: str
    train: Train


@dataclass(frozen=True)
class SmoothAdv:
    """SmoothAdv (Salman et al., 2019) at one sigma."""

    sigma: float
    attack: str  # pgd or ddn
    steps: int
    draws: int  # m noisy copies of an image
    epsilon: float  # l2 radius of the attack, in [0, 1] pixel units
    warmup: int  # epochs over which epsilon grows

    def __post_init__(self):
        _check_one_of("smoothadv.attack", self.attack, ATTACKS)
        _check_positive(
            "smoothadv", sigma=self.sigma, steps=self.steps, draws=self.draws, epsilon=self.epsilon
        )


@dataclass(frozen=True)
class Macer:
    """MACER (Zhai et al., 2020) at one sigma."""

    sigma: float
    draws: int  # k
    beta: float  # inverse temperature of the soft radius
    gamma: float  # hinge
    weight: float  # lambda, the weight of the radius loss
    after_milestone: int  # the radius loss sets in after this many milestones (0: from the start)

    def __post_init__(self):
        _check_positive(
            "macer",
            sigma=self.sigma,
            draws=self.draws,
            beta=self.beta,
            gamma=self.gamma,
            weight=self.weight,
        )


@dataclass(frozen=True)
class Consistency:
    """Consistency regularisation (Jeong and Shin, 2020) at one sigma."""

    sigma: float
    draws: int  # m
    weight: float  # lambda, the weight of the divergence
    eta: float  # the weight of the entropy

    def __post_init__(self):
        _check_positive("consistency", sigma=self.sigma, weight=self.weight)
        _check("consistency.draws", self.draws, self.draws >= 2, "at least 2 draws")


@dataclass(frozen=True)
class Certify:
    """The certification network. Each method lists its settings by sigma; the nearest sigma
    applies.
    """

    arch: str
    checkpoint: str
    method: str
    train: Train
    smoothadv: list[SmoothAdv]
    macer: list[Macer]
    consistency: list[Consistency]

    def __post_init__(self):
        _check_one_of("certify.method", self.method, METHODS)
        if self.method != "gaussian":
            _check(
                f"certify.{self.method}",
                [],
                bool(getattr(self, self.method)),
                f"at least one block of settings, since certify.method is {self.method}",
            )

    def settings(self, sigma: float) -> SmoothAdv | Macer | Consistency | None:
        """The method's settings for the sigma nearest to `sigma`; gaussian has none."""
        blocks = getattr(self, self.method, ())
        return min(blocks, key=lambda block: abs(math.log(block.sigma / sigma)), default=None)


@dataclass(frozen=True)
class Select:
    mechanism: str
    checkpoint: str
    eta: float  # a training image is labelled "certify" if this share of its draws is correct
    draws: int  # noisy copies of each training image

    def __post_init__(self):
        _check_one_of("select.mechanism", self.mechanism, MECHANISMS)
        _check("select.eta", self.eta, 0 < self.eta <= 1, "a number in (0, 1]")
        _check_positive("select", draws=self.draws)


@dataclass(frozen=True)
class Adaptive:
    """Group-sequential early stopping: looks at these draws, spending these shares of alpha."""

    enabled: bool
    alpha: float  # what the stopping aims at; the bounds are sound at any combine.alpha
    looks: list[float]  # shares of n, ascending, the last is 1
    spend: list[float]  # shares of alpha, sum at most 1
    tolerance: float  # an image stops when no radius can grow by more than this share
    thetas: list[float]  # of interest: an image stops when its answers are settled at all of these

    def __post_init__(self):
        _check("sample.adaptive.alpha", self.alpha, 0 < self.alpha < 0.5, "a number in (0, 0.5)")
        _check(
            "sample.adaptive.looks",
            self.looks,
            bool(self.looks)
            and self.looks == sorted(set(self.looks))
            and self.looks[0] > 0
            and self.looks[-1] == 1,
            "ascending shares of n, the last of them 1",
        )
        _check(
            "sample.adaptive.spend",
            self.spend,
            len(self.spend) == len(self.looks)
            and min(self.spend) > 0
            and sum(self.spend) <= 1 + 1e-12,
            "a share above 0 for each look, adding up to at most 1",
        )
        _check(
            "sample.adaptive.tolerance",
            self.tolerance,
            0 <= self.tolerance < 1,
            "a number in [0, 1)",
        )
        on_grid = all(
            0 <= theta <= 1 and abs(theta * GRID - round(theta * GRID)) < 1e-6
            for theta in self.thetas
        )
        _check(
            "sample.adaptive.thetas",
            self.thetas,
            bool(self.thetas) and on_grid,
            f"multiples of 1/{GRID} in [0, 1]",
        )


@dataclass(frozen=True)
class Sample:
    n0: int
    n: int
    n_predict: int
    chunk: int
    precision: str
    adaptive: Adaptive

    def __post_init__(self):
        _check_positive("sample", n0=self.n0, n=self.n, n_predict=self.n_predict, chunk=self.chunk)
        _check_one_of("sample.precision", self.precision, PRECISIONS)


@dataclass(frozen=True)
class Combine:
    alpha: float  # the total failure probability of an answer
    multiplicity: str
    theta_step: float  # thetas are 0, step, 2 step, ..., 1
    radii: list[float]

    def __post_init__(self):
        _check("combine.alpha", self.alpha, 0 < self.alpha < 0.5, "a number in (0, 0.5)")
        _check_one_of("combine.multiplicity", self.multiplicity, MULTIPLICITIES)
        steps = self.theta_step * GRID
        on_grid = steps > 0 and abs(steps - round(steps)) < 1e-9 and GRID % round(steps) == 0
        _check(
            "combine.theta_step",
            self.theta_step,
            on_grid,
            f"1/{GRID} times a divisor of {GRID}, such as 0.01",
        )
        _check(
            "combine.radii",
            self.radii,
            bool(self.radii) and self.radii == sorted(set(self.radii)) and self.radii[0] >= 0,
            "ascending radii of at least 0",
        )
        _check(
            "combine.radii",
            self.radii,
            len({f"{radius:g}" for radius in self.radii}) == len(self.radii),
            "radii that differ in their first six digits, which name them",
        )

    @property
    def thetas(self) -> list[float]:
        step = round(self.theta_step * GRID)
        return [i / GRID for i in range(0, GRID + 1, step)]


@dataclass(frozen=True)
class Report:
    thetas: list[float]  # rows of the tables
    bootstrap: int  # resamples of the intervals

    def __post_init__(self):
        _check(
            "report.thetas",
            self.thetas,
            bool(self.thetas) and all(0 <= theta <= 1 for theta in self.thetas),
            "at least one number in [0, 1]",
        )
        _check_positive("report", bootstrap=self.bootstrap)


@dataclass(frozen=True)
class Baseline:
    sigmas: list[float]  # evaluation sigmas of the varying-noise baseline

    def __post_init__(self):
        _check(
            "baseline.sigmas",
            self.sigmas,
            all(sigma > 0 for sigma in self.sigmas),
            "numbers above 0",
        )


@dataclass(frozen=True)
class Params:
    sigma: float
    seed: int
    dataset: Dataset
    core: Core
    certify: Certify
    select: Select
    sample: Sample
    combine: Combine
    report: Report
    baseline: Baseline

    def __post_init__(self):
        _check(
            "sigma", self.sigma, 0 < self.sigma < 10, "a number in (0, 10), in [0, 1] pixel units"
        )
        _check("seed", self.seed, 0 <= self.seed < 2**32, "a whole number in [0, 2**32)")
        missing = [
            theta
            for theta in self.report.thetas
            if not any(abs(theta - known) < 1e-9 for known in self.combine.thetas)
        ]
        _check(
            "report.thetas",
            missing,
            not missing,
            f"multiples of combine.theta_step={self.combine.theta_step:g}",
        )
        macer, decays = self.certify.settings(self.sigma), len(self.certify.train.milestones)
        if isinstance(macer, Macer):
            _check(
                "certify.macer.after_milestone",
                macer.after_milestone,
                macer.after_milestone <= decays,
                f"at most the {decays} milestones of certify.train, or the radius loss never sets in",
            )
        adaptive = self.sample.adaptive
        needed = needed_draws(
            self.combine.alpha * (adaptive.spend[-1] if adaptive.enabled else 1.0)
        )
        for name in ("n", "n_predict"):
            n = getattr(self.sample, name)
            if n < needed:
                raise InputError(
                    f"sample.{name}={n} is too small for combine.alpha={self.combine.alpha}: every answer "
                    f"would be an abstention; set sample.{name} to at least {needed}"
                )


def needed_draws(alpha: float) -> int:
    """The least n for which draws that all agree pass every test: a lower bound at alpha / 2 above
    1/2, which needs 2^-n < alpha / 2, and a two-sided test at alpha / 2, which needs 2 * 2^-n <=
    alpha / 2.
    """
    return math.ceil(math.log2(4 / alpha))


def load(path: str | Path = "params.yaml") -> Params:
    """Read and validate a parameter file."""
    path = Path(path)
    try:
        tree = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: `aces profile use laptop` writes one") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return _build(Params, tree, "")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def flatten(params) -> dict[str, object]:
    """`{"sample.n": 2000, ...}`, the form MLflow logs."""
    return dict(_leaves("", dataclasses.asdict(params)))


def _leaves(prefix: str, node):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else key, value)
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        for number, value in enumerate(node):
            yield from _leaves(f"{prefix}.{number}", value)
    else:
        yield prefix, node


def _build(kind, value, name: str):
    """Turn a YAML value into `kind`, naming the key in every complaint."""
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise InputError(
                f"{name or 'the file'} is {value!r}: expected the keys {', '.join(f.name for f in fields(kind))}"
            )
        known = typing.get_type_hints(kind)
        place = f" in {name}" if name else ""
        for key in value:
            if key not in known:
                raise InputError(f"unknown key {key!r}{place}: expected {', '.join(known)}")
        for key in known:
            if key not in value:
                raise InputError(f"missing key {key!r}{place}: `aces profile` shows complete files")
        return kind(
            **{
                key: _build(hint, value[key], f"{name}.{key}" if name else key)
                for key, hint in known.items()
            }
        )
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{name}={value!r}: expected a list")
        (item,) = typing.get_args(kind)
        return [_build(item, element, f"{name}[{number}]") for number, element in enumerate(value)]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        hint = (
            " (YAML reads 1e-3 as text: write 0.001 or 1.0e-3)"
            if kind is float and isinstance(value, str)
            else ""
        )
        raise InputError(f"{name}={value!r}: expected {_WORDS[kind]}{hint}")
    if kind is float and not math.isfinite(value):
        raise InputError(f"{name}={value!r}: expected a finite number")
    return value


_WORDS = types.MappingProxyType(
    {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
)
