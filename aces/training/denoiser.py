"""Training of a denoiser before a fixed classifier (Salman et al., 2020, denoised smoothing).

Two objectives, both on one noisy copy of each image:

| objective   | loss                                                                            |
|-------------|---------------------------------------------------------------------------------|
| `mse`       | mean squared error of the denoised image, in units of the noise's variance      |
| `stability` | cross-entropy of the classifier's answer for the denoised image with its answer |
|             | for the clean image                                                             |

The first needs no classifier and serves all of them. The second serves one classifier. Only the
denoiser's weights are trained.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces import networks
from aces.data import TrainSet
from aces.errors import InputError
from aces.networks.denoise import Denoised
from aces.params import Train
from aces.runtime import Runtime
from aces.training.batches import Batch, Loss, draw_noise, noisy_copies
from aces.training.loop import OnEpoch, train_network
from aces.training.methods import Method

OBJECTIVES = ("mse", "stability")
_DEFAULT = Runtime()


class Views(NamedTuple):
    """What a loss needs to know of a batch, from one call of the network."""

    denoised: Tensor  # (B, C, H, W)
    logits: Tensor  # (B, K), of the denoised images
    answer: Tensor | None  # (B,) int64, the classifier's for the clean images, if a loss needs it


class Pupil(nn.Module):
    """A denoised network as the training loop sees it: one call gives all that a loss needs."""

    def __init__(self, network: Denoised, objective: str):
        super().__init__()
        self.network = network
        self.through_classifier = objective == "stability"  # whether gradients go through it
        network.classifier.requires_grad_(False)

    def forward(self, z: Tensor, image: Tensor) -> Views:
        denoised = self.network.denoiser(z, self.network.sigma)
        if not self.through_classifier:
            return Views(denoised, self.network.classifier(denoised.detach()), None)
        with torch.no_grad():
            answer = self.network.classifier(image).argmax(dim=1)
        return Views(denoised, self.network.classifier(denoised), answer)


def train_denoiser(
    denoiser: nn.Module,
    classifier: nn.Module,
    data: TrainSet,
    *,
    settings: Train,
    sigma: float,
    seed: int,
    objective: str = "mse",
    title: str = "denoiser",
    runtime: Runtime = _DEFAULT,
    on_epoch: OnEpoch | None = None,
) -> nn.Module:
    """Train `denoiser` in place before the fixed `classifier`, as `train_network` trains a network.

    It is returned on the CPU, in evaluation mode. `networks.before(denoiser, classifier, ...)` is
    then the certification network. The accuracy that `on_epoch` gets is that of the classifier on
    the denoised images.
    """
    composed = networks.before(denoiser, classifier, sigma=sigma)
    assert isinstance(composed.network, Denoised)
    train_network(
        Pupil(composed.network, objective),
        data,
        settings=settings,
        method=method(objective),
        sigma=sigma,
        seed=seed,
        title=title,
        runtime=runtime,
        on_epoch=on_epoch,
    )
    return denoiser.eval()


def method(objective: str = "mse") -> Method:
    """The training method with this objective, for a `Pupil`."""
    if objective not in OBJECTIVES:
        raise InputError(f"objective={objective!r}: expected one of {', '.join(OBJECTIVES)}")
    return Method(f"denoise-{objective}", loss, {"objective": objective})


def loss(
    network: nn.Module,
    batch: Batch,
    *,
    sigma: float,
    generator: torch.Generator,
    settings: dict[str, str],
) -> Loss:
    """The loss, and the classifier's scores for the denoised images."""
    noise = draw_noise(batch.image, sigma=sigma, draws=1, generator=generator)
    views: Views = network(noisy_copies(batch.image, noise), batch.image)
    if settings["objective"] == "mse":
        value = F.mse_loss(views.denoised.float(), batch.image) / sigma**2
    else:
        assert views.answer is not None
        value = F.cross_entropy(views.logits.float(), views.answer)
    return Loss(value, views.logits.detach().float())
