"""The sections of params.yaml, one class each.

Every key has a default, so a file may leave out what it does not change, and a new key breaks no old
file. Constraints on one key stand with the key; constraints between keys are the validators below.
A validator's message begins with the name of the key, without the section it is in: `reading` adds it.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from aces import grid
from aces.extension import is_reference

NONE = "checkpoints/none"  # an empty file: in dvc.yaml it stands for "no such file"
METHODS = ("gaussian", "smoothadv", "macer", "consistency")
SCORES = ("entropy", "network")

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Section(BaseModel):
    """A frozen section without unknown keys. Text is not read as a number, nor true as 1."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def replace(self, **changes: Any) -> Self:
        """The same section with other values, validated."""
        return type(self)(**{**dict(self), **changes})


def _must(condition: bool, key: str, value: object, expected: str) -> None:
    if not condition:
        raise ValueError(f"{key}={value!r}: expected {expected}")


def _choices(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}, or package.module:function"


def _is_ascending(values: list) -> bool:
    return values == sorted(set(values))


class Dataset(Section):
    name: str = "cifar10"
    """`cifar10`, `imagenet`, `digits`, `folder`, `npz`, `torchvision/<Name>`, `hf/<name>`, or `package.module:function`."""
    stride: Count = 20
    """Every stride-th test image is evaluated."""
    path: str | None = None
    """Where the images of a `folder` or `npz` dataset lie."""
    size: Annotated[int, Field(gt=0, le=4096)] | None = None
    """The side in pixels of the images that the networks see; by default the dataset's own."""
    resize: Annotated[int, Field(gt=0, le=8192)] | None = None
    """The shorter side of an image file before its centre is cropped to `size`; by default `size`."""
    split: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of the images that are test images, where the dataset has no test images of its own."""
    skip_unreadable: bool = False
    """Leave out image files that cannot be read, instead of stopping at them."""
    settings: dict[str, Any] = {}
    """Handed to the function that `name` names."""
    code: str = NONE
    """The file or folder of that function, if it lies in this project: DVC then watches it."""


class Train(Section):
    """How a network is trained."""

    epochs: Count = 6
    batch: Count = 256
    lr: Positive = 0.4
    momentum: Share = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0005
    optimizer: Literal["sgd", "muon"] = "sgd"
    """`sgd`, or `muon`: orthogonalised momentum for convolutions, SGD for everything else."""
    label_smoothing: Share = 0.0
    whitening: bool = False
    """Begin the first convolution as filters that whiten the patches of the training images."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The type of the network's arithmetic; weights stay float32. GPUs always use bfloat16."""
    schedule: Literal["one-cycle", "step"] = "one-cycle"
    """`one-cycle`: up to lr and down to 0. `step`: lr times 0.1 at each milestone."""
    peak: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """The share of a one-cycle schedule after which the learning rate falls."""
    milestones: list[int] = []
    """Epochs at which the schedule `step` lowers the learning rate."""

    @model_validator(mode="after")
    def _check(self) -> "Train":
        ascending = _is_ascending(self.milestones)
        _must(ascending, "milestones", self.milestones, "epochs in ascending order")
        return self


class Core(Section):
    """The accurate network, trained without noise."""

    arch: str = "small-core"
    """A built-in name, `torchvision/<name>`, `timm/<name>`, `hf/<repository>`, or `package.module:function`."""
    checkpoint: str = NONE
    """A file of trained weights, instead of training."""
    weights: Literal["pretrained"] | None = None
    """Take the pretrained weights of a torchvision, timm or Hugging Face network, instead of training."""
    size: Annotated[int, Field(gt=0, le=4096)] | None = None
    """The side in pixels at which the core network alone sees an image; by default that of the dataset."""
    code: str = NONE
    """The file or folder of an architecture of your own, if it lies in this project."""
    train: Train = Train()


class SmoothAdv(Section):
    """SmoothAdv (Salman et al., 2019) at one sigma."""

    sigma: Positive
    attack: Literal["pgd", "ddn"]
    steps: Count
    draws: Count
    """m, the noisy copies of an image."""
    epsilon: Positive
    """The l2 radius of the attack, in [0, 1] pixel units."""
    warmup: Annotated[int, Field(ge=0)]
    """Epochs over which epsilon grows."""


class Macer(Section):
    """MACER (Zhai et al., 2020) at one sigma."""

    sigma: Positive
    draws: Count
    """k, the noisy copies of an image."""
    beta: Positive
    """Inverse temperature of the soft radius."""
    gamma: Positive
    """The hinge."""
    weight: Positive
    """lambda, the weight of the radius loss."""
    after_milestone: Annotated[int, Field(ge=0)]
    """The radius loss sets in after this many milestones (0: from the start)."""


class Consistency(Section):
    """Consistency regularisation (Jeong and Shin, 2020) at one sigma."""

    sigma: Positive
    draws: Annotated[int, Field(ge=2)]
    """m, the noisy copies of an image."""
    weight: Positive
    """lambda, the weight of the divergence."""
    eta: Annotated[float, Field(ge=0)]
    """The weight of the entropy."""


class Denoiser(Section):
    """A denoiser before the classifier: the certification network is classifier(denoiser(z, sigma))."""

    arch: str = "small-denoiser"
    checkpoint: str = NONE
    code: str = NONE
    train: Train = Train()


class Certify(Section):
    """The certification network. Each built-in method lists its settings by sigma: the nearest applies."""

    arch: str = "small"
    """As for the core network; `core` with a denoiser: the core network itself."""
    checkpoint: str = NONE
    weights: Literal["pretrained"] | None = None
    method: str = "gaussian"
    """`gaussian`, `smoothadv`, `macer`, `consistency`, or `package.module:function`."""
    settings: dict[str, Any] = {}
    """Handed to the function that `method` names."""
    code: str = NONE
    """The file or folder of an architecture or a method of your own, if it lies in this project."""
    denoiser: Denoiser | None = None
    train: Train = Train()
    smoothadv: list[SmoothAdv] = [
        SmoothAdv(sigma=0.25, attack="pgd", steps=2, draws=1, epsilon=0.25, warmup=1)
    ]
    macer: list[Macer] = [
        Macer(sigma=0.25, draws=4, beta=16.0, gamma=8.0, weight=4.0, after_milestone=0)
    ]
    consistency: list[Consistency] = [Consistency(sigma=0.25, draws=2, weight=5.0, eta=0.5)]

    @model_validator(mode="after")
    def _check(self) -> "Certify":
        known = self.method in METHODS or is_reference(self.method)
        _must(known, "method", self.method, _choices(METHODS))
        if self.method in ("smoothadv", "macer", "consistency"):
            blocks = getattr(self, self.method)
            why = f"at least one block of settings, since method is {self.method}"
            _must(bool(blocks), self.method, blocks, why)
        return self


class Select(Section):
    """Who answers, by the paper's rule: the certification network where a score is at most theta."""

    score: str = "entropy"
    """`entropy`, `network` (a selection network), or `package.module:function` from logits to [0, 1]."""
    checkpoint: str = NONE
    """A trained selection network, instead of training one."""
    eta: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A training image is labelled "certify" if this share of its noisy copies is classified correctly."""
    draws: Count = 100
    """Noisy copies of each training image."""
    code: str = NONE
    """The file or folder of a score of your own, if it lies in this project."""

    @field_validator("score")
    @classmethod
    def _check(cls, score: str) -> str:
        _must(score in SCORES or is_reference(score), "score", score, _choices(SCORES))
        return score


class Adaptive(Section):
    """Early stopping: looks after shares of the draws, which spend shares of alpha."""

    enabled: bool = False
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    """What the stopping aims at; the bounds are sound at any combine.alpha."""
    looks: list[float] = [0.02, 0.053, 0.141, 0.376, 1.0]
    """Shares of n, ascending; the last is 1."""
    spend: list[float] = [0.02, 0.03, 0.04, 0.06, 0.85]
    """Shares of alpha; their sum is at most 1."""
    tolerance: Share = 0.02
    """An image stops when no radius can grow by more than this share of the largest possible one."""
    thetas: Literal["all"] | list[float] = "all"
    """The thetas of interest: an image stops when its answers are settled at all of these."""

    @model_validator(mode="after")
    def _check(self) -> "Adaptive":
        looks, spend = self.looks, self.spend
        shares = bool(looks) and _is_ascending(looks) and looks[0] > 0 and looks[-1] == 1
        _must(shares, "looks", looks, "ascending shares of n, the last of them 1")
        spent = len(spend) == len(looks) and min(spend) > 0 and sum(spend) <= 1 + 1e-12
        _must(spent, "spend", spend, "a share above 0 for each look, adding up to at most 1")
        if self.thetas != "all":
            on_grid = bool(self.thetas) and all(map(grid.is_on_grid, self.thetas))
            wanted = f"all, or multiples of 1/{grid.BINS} in [0, 1]"
            _must(on_grid, "thetas", self.thetas, wanted)
        return self


class Sample(Section):
    """The draws."""

    n0: Count = 100
    """Draws that fix the guesses."""
    n: Count = 2000
    """Draws that bound the probabilities of the guesses."""
    n_predict: Annotated[int, Field(ge=0)] = 0
    """Draws for PREDICT alone; 0: PREDICT uses the n draws, since its promise is a separate one."""
    chunk: Count = 128
    """Draws of one image that are made together: what a kill can lose."""
    noise: Literal["exact", "float"] = "exact"
    """`exact`: whole numbers on a lattice, certificates hold in floating point. `float`: for comparison."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """The network in this precision is the one that is certified, saved and served."""
    adaptive: Adaptive = Adaptive()


class Calibrate(Section):
    """The choice of theta: the largest whose loss of accuracy is at most `loss`, with `confidence`."""

    loss: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """How much of the core network's natural accuracy may be lost."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    images: Annotated[int, Field(ge=0)] = 2000
    """Test images that are not evaluated; 0: no calibration, report.theta must be set."""
    n: Count = 500
    """Draws of a calibration image, at most."""


class Combine(Section):
    """The rule."""

    rule: Literal["confident", "paper"] = "confident"
    """`confident`: one event, class and certainty together. `paper`: Algorithm 1."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    """The total failure probability of an answer."""
    multiplicity: Literal["iut", "bonferroni"] = "iut"
    """How the paper's rule shares alpha: `iut` gives larger radii, `bonferroni` is the paper's."""
    theta_step: float = 0.01
    """Thetas are 0, step, 2 step, ..., 1."""
    radii: Literal["auto"] | list[float] = "auto"
    """Radii of the certified accuracies; `auto`: from 0 to what the draws can certify, in round steps."""

    @property
    def thetas(self) -> list[float]:
        return grid.thetas(self.theta_step)

    @model_validator(mode="after")
    def _check(self) -> "Combine":
        step = f"1/{grid.BINS} times a divisor of {grid.BINS}, such as 0.01"
        _must(grid.is_step(self.theta_step), "theta_step", self.theta_step, step)
        if self.radii != "auto":
            radii = self.radii
            ascending = bool(radii) and _is_ascending(radii) and radii[0] >= 0
            _must(ascending, "radii", radii, "auto, or ascending radii of at least 0")
            distinct = len({f"{radius:g}" for radius in radii}) == len(radii)
            named = "radii that differ in their first six digits, which name them"
            _must(distinct, "radii", radii, named)
        return self


class Report(Section):
    theta: Annotated[float, Field(ge=0, le=1)] | None = None
    """The working point; by default the calibrated theta."""
    thetas: list[float] = [i / 10 for i in range(11)]
    """Rows of the tables."""
    bootstrap: Annotated[int, Field(gt=0, le=1_000_000)] = 1000
    """Resamples of the intervals."""

    @field_validator("thetas")
    @classmethod
    def _check(cls, thetas: list[float]) -> list[float]:
        fine = bool(thetas) and all(0 <= theta <= 1 for theta in thetas)
        _must(fine, "thetas", thetas, "at least one number in [0, 1]")
        return thetas


class Baseline(Section):
    sigmas: list[Positive] = []
    """Evaluation sigmas of the varying-noise baseline."""


class Params(Section):
    sigma: Annotated[float, Field(gt=0, lt=10)] = 0.25
    """Standard deviation of the noise, in [0, 1] pixel units."""
    seed: Seed = 0
    dataset: Dataset = Dataset()
    core: Core = Core()
    certify: Certify = Certify()
    select: Select = Select()
    sample: Sample = Sample()
    calibrate: Calibrate = Calibrate()
    combine: Combine = Combine()
    report: Report = Report()
    baseline: Baseline = Baseline()

    @model_validator(mode="after")
    def _check(self) -> "Params":
        self._check_thetas()
        self._check_macer()
        self._check_draws()
        _must(
            self.calibrate.images > 0 or self.report.theta is not None,
            "calibrate.images",
            0,
            "images to choose theta on, or a theta of your own in report.theta",
        )
        return self

    def _check_thetas(self) -> None:
        known = grid.thetas(self.combine.theta_step)
        asked = [*self.report.thetas, *([] if self.report.theta is None else [self.report.theta])]
        missing = [theta for theta in asked if not any(abs(theta - it) < 1e-9 for it in known)]
        step = f"multiples of combine.theta_step={self.combine.theta_step:g}"
        name = "report.theta" if missing == [self.report.theta] else "report.thetas"
        _must(not missing, name, missing, step)

    def _check_macer(self) -> None:
        decays = len(self.certify.train.milestones)
        late = [block for block in self.certify.macer if block.after_milestone > decays]
        if self.certify.method == "macer" and late:
            why = f"at most the {decays} milestones of certify.train, or the radius loss never sets in"
            _must(False, "certify.macer.after_milestone", late[0].after_milestone, why)

    def _check_draws(self) -> None:
        adaptive, alpha = self.sample.adaptive, self.combine.alpha
        needed = needed_draws(alpha * (adaptive.spend[-1] if adaptive.enabled else 1.0))
        for name in ("n", "n_predict"):
            n = getattr(self.sample, name)
            if n < needed and not (name == "n_predict" and n == 0):
                raise ValueError(
                    f"sample.{name}={n} is too small for combine.alpha={alpha}: every answer would be "
                    f"an abstention; set sample.{name} to at least {needed}"
                )
        fewest = needed_draws(alpha)
        if self.calibrate.n < fewest:
            raise ValueError(
                f"calibrate.n={self.calibrate.n} is too small for combine.alpha={alpha}: every answer "
                f"would be an abstention; set calibrate.n to at least {fewest}"
            )


def needed_draws(alpha: float) -> int:
    """The least n for which draws that all agree pass every test.

    These are a lower bound at alpha / 2 above 1/2, which needs 2^-n < alpha / 2, and a two-sided test
    at alpha / 2, which needs 2 * 2^-n <= alpha / 2.
    """
    return math.ceil(math.log2(4 / alpha))
