"""`core`, `certify` and `select`: the networks and how they are trained."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from aces.extension import is_reference
from aces.params.section import NONE, Count, Positive, Section, Share, choices, is_ascending, must

METHODS = ("gaussian", "smoothadv", "macer", "consistency")
SCORES = ("entropy", "network")


class Train(Section):
    """How a network is trained."""

    epochs: Count = 6
    batch: Count = 256
    shards: Count = 1
    """Parts of a batch that the cores of a CPU train on side by side, each with its own batch norm
    statistics. GPUs share a batch among themselves instead."""
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
        ascending = is_ascending(self.milestones)
        must(ascending, "milestones", self.milestones, "epochs in ascending order")
        return self


class Core(Section):
    """The accurate network, trained without noise."""

    arch: str = "small-core"
    """A built-in name, `torchvision/<name>`, `timm/<name>`, `hf/<repository>`, or
    `package.module:function`."""
    checkpoint: str = NONE
    """A file of trained weights, instead of training."""
    weights: Literal["pretrained"] | None = None
    """Take the pretrained weights of a torchvision, timm or Hugging Face network, instead of
    training."""
    size: Annotated[int, Field(gt=0, le=4096)] | None = None
    """The side in pixels at which the core network alone sees an image; by default that of the
    dataset."""
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
    """A denoiser before the classifier: the certification network is classifier(denoiser(z,
    sigma)).
    """

    arch: str = "none"
    """`none`, `ffdnet`, `dncnn`, `small-denoiser`, or `package.module:function`."""
    checkpoint: str = NONE
    """A file of trained weights, instead of training."""
    objective: Literal["mse", "stability"] = "mse"
    """What training minimises: the squared error of the denoised image, or (`stability`) the
    cross-entropy with the classifier's answer for the clean image."""
    train: Train = Train(optimizer="muon", lr=0.045)
    """By default with Muon: plain gradient steps diverge, or leave the noise as it is."""


class Certify(Section):
    """The certification network. Each built-in method lists its settings by sigma: the nearest
    applies.
    """

    arch: str = "small"
    """As for the core network."""
    checkpoint: str = NONE
    """A file of trained weights, instead of training; `models/core.safetensors` is the core
    network."""
    weights: Literal["pretrained"] | None = None
    method: str = "gaussian"
    """`gaussian`, `smoothadv`, `macer`, `consistency`, or `package.module:function`."""
    settings: dict[str, Any] = {}
    """Handed to the function that `method` names."""
    code: str = NONE
    """The file or folder of an architecture, a denoiser or a method of your own, if it lies in
    this project."""
    denoiser: Denoiser = Denoiser()
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
        must(known, "method", self.method, choices(METHODS))
        if self.method in ("smoothadv", "macer", "consistency"):
            blocks = getattr(self, self.method)
            why = f"at least one block of settings, since method is {self.method}"
            must(bool(blocks), self.method, blocks, why)
        return self


class Select(Section):
    """Who answers, by the paper's rule: the certification network where a score is at most theta."""

    score: str = "entropy"
    """`entropy`, `network` (a selection network), or `package.module:function` from logits to [0,
    1]."""
    checkpoint: str = NONE
    """A trained selection network, instead of training one."""
    eta: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A training image is labelled "certify" if this share of its noisy copies is classified
    correctly."""
    draws: Count = 100
    """Noisy copies of each training image."""
    code: str = NONE
    """The file or folder of a score of your own, if it lies in this project."""

    @field_validator("score")
    @classmethod
    def _check(cls, score: str) -> str:
        must(score in SCORES or is_reference(score), "score", score, choices(SCORES))
        return score
