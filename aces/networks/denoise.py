"""Denoised smoothing: certify a network that never saw noise, with a denoiser before it.

Salman et al. (2020) put a denoiser D before any classifier f and smooth f(D(z, sigma)); Carlini et
al. (2023) take a diffusion model for D, in one step. The pair is one network from noisy pixels to
logits, so nothing else changes: it is sampled, certified, saved and served as any other.

A denoiser is a torch module `denoiser(z, sigma) -> image`: z (N, C, H, W) are pixels in [0, 1] plus
Gaussian noise of standard deviation sigma (a tensor without dimensions), the result estimates the
pixels. Known by name:

| name                      | denoiser                                                        |
|---------------------------|-----------------------------------------------------------------|
| `ffdnet`                  | FFDNet (Zhang et al., 2018), which is told sigma                |
| `dncnn`                   | DnCNN or IRCNN (Zhang et al., 2017), for the noise of training  |
| `small-denoiser`          | a few convolutions at half resolution: minutes on two cores     |
| `package.module:function` | your own: `function(channels)` returns the module               |

`OneStepDiffusion` makes a denoiser of a module that predicts the noise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces import extension
from aces.errors import InputError, one_line

FFDNET, DNCNN, SMALL = "ffdnet", "dncnn", "small-denoiser"
GREY = "grey"  # among the options: a denoiser of grey images, for each channel on its own


class FFDNet(nn.Module):
    """Convolutions at half resolution, with the noise level as one more channel."""

    def __init__(self, channels: int, *, width: int, depth: int):
        super().__init__()
        widths = [4 * channels + 1, *[width] * (depth - 1), 4 * channels]
        layers: list[nn.Module] = []
        for place in range(depth):
            layers.append(nn.Conv2d(widths[place], widths[place + 1], 3, padding=1))
            if place < depth - 1:
                layers.append(nn.ReLU())
        self.model = nn.Sequential(*layers)  # the published names are model.0.weight, ...

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        height, width = z.shape[-2:]
        z = F.pixel_unshuffle(_even(z), 2)
        level = sigma.to(z.dtype).expand(len(z), 1, *z.shape[-2:])
        denoised = F.pixel_shuffle(self.model(torch.cat((z, level), dim=1)), 2)
        return denoised[..., :height, :width]


class DnCNN(nn.Module):
    """z minus an estimate of its noise, which convolutions at full resolution make.

    biases: of the first convolution, those between, and the last. Published networks with a bias in
    the first one have the batch norm of their authors, which adds 1e-4 to the variance; the others
    have torch's. dilated: the convolutions reach 1, 2, 3, ... pixels, and then less again, as in
    IRCNN (Zhang et al., 2017).
    """

    def __init__(
        self,
        channels: int,
        *,
        width: int,
        depth: int,
        norm: bool,
        biases: Sequence[bool],
        dilated: bool = False,
    ):
        super().__init__()
        first, middle, last = biases
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=first), nn.ReLU()]
        for place in range(1, depth - 1):
            reach = 1 + min(place, depth - 1 - place) if dilated else 1
            layers.append(nn.Conv2d(width, width, 3, padding=reach, dilation=reach, bias=middle))
            layers += [nn.BatchNorm2d(width, eps=1e-4 if first else 1e-5)] if norm else []
            layers.append(nn.ReLU())
        layers.append(nn.Conv2d(width, channels, 3, padding=1, bias=last))
        self.model = nn.Sequential(*layers)

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        return z - self.model(z)


class SmallDenoiser(nn.Module):
    """z minus an estimate of its noise, which a few convolutions at half resolution make."""

    def __init__(self, channels: int, *, width: int, depth: int):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(4 * channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            layers += [nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, 4 * channels, 3, padding=1))

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        height, width = z.shape[-2:]
        noise = F.pixel_shuffle(self.layers(F.pixel_unshuffle(_even(z), 2)), 2)
        return z - noise[..., :height, :width]


def _even(z: Tensor) -> Tensor:
    """Images with an even number of rows and columns: the last ones are repeated if need be."""
    bottom, right = z.shape[-2] % 2, z.shape[-1] % 2
    return F.pad(z, (0, right, 0, bottom), mode="replicate") if bottom or right else z


class EachChannel(nn.Module):
    """A denoiser of grey images, for images of several channels: each is denoised on its own."""

    def __init__(self, denoiser: nn.Module):
        super().__init__()
        self.denoiser = denoiser

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        return self.denoiser(z.reshape(-1, 1, *z.shape[-2:]), sigma).reshape(z.shape)


class OneStepDiffusion(nn.Module):
    """A diffusion model as denoiser, in one step (Carlini et al., 2023).

    `model(x, t)` predicts the noise in x = sqrt(a_t) x_0 + sqrt(1 - a_t) noise, for images x_0 in
    [-1, 1] and time steps t (N,) int64; `alphas_cumprod` are the a_t, falling, for t = 0, 1, ...
    Pixels in [0, 1] have half that scale, so the noise is 2 sigma there. The time step is the one
    with (1 - a_t) / a_t nearest to (2 sigma)^2, and sqrt(a_t) (2 z - 1) is such an x.
    A model that also predicts a variance has twice the channels: the first half is the noise.
    """

    alphas: Tensor

    def __init__(self, model: nn.Module, alphas_cumprod: Sequence[float] | Tensor):
        super().__init__()
        self.model = model
        alphas = torch.as_tensor(alphas_cumprod, dtype=torch.float32)
        sound = alphas.is_meta or bool(((alphas > 0) & (alphas < 1)).all())
        if alphas.ndim != 1 or not len(alphas) or not sound:
            raise InputError(
                f"alphas_cumprod of shape {tuple(alphas.shape)}: expected a list of numbers "
                "between 0 and 1, one for each time step"
            )
        self.register_buffer("alphas", alphas)

    def time_step(self, sigma: Tensor) -> Tensor:
        """The time step whose share of noise is nearest to that of sigma."""
        levels = ((1 - self.alphas) / self.alphas).sqrt()
        return (levels - 2 * sigma).abs().argmin()

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        step = self.time_step(sigma)
        alpha = self.alphas[step]
        x = alpha.sqrt() * (2 * z - 1)
        noise = self.model(x, step.expand(len(z)))[:, : z.shape[1]]
        clean = (x - (1 - alpha).sqrt() * noise) / alpha.sqrt()
        return (clean.clamp(-1, 1) + 1) / 2


class Denoised(nn.Module):
    """classifier(denoiser(z, sigma)) as one network: noisy pixels (N, C, H, W) -> logits (N, K).

    sigma is part of the state, so that networks for two noise levels have two fingerprints.
    """

    sigma: Tensor

    def __init__(self, denoiser: nn.Module, classifier: nn.Module, *, sigma: float):
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier
        self.register_buffer("sigma", torch.tensor(float(sigma)))

    def forward(self, z: Tensor) -> Tensor:
        return self.classifier(self.denoiser(z, self.sigma))

    def train(self, mode: bool = True) -> "Denoised":
        """Only the denoiser is ever trained: the classifier keeps its statistics of batches."""
        super().train(mode)
        self.classifier.eval()
        return self


def build_denoiser(
    arch: str, *, channels: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """A fresh denoiser; its attribute `recipe` holds the arguments that make such a one again."""
    options = dict(options or {})
    if options.pop(GREY, False):
        return each_channel(build_denoiser(arch, channels=1, options=options), channels)
    if arch in (FFDNET, DNCNN, SMALL):
        options = _usual(arch, channels) | options
        denoiser = _known(arch, channels, options)
    elif extension.is_reference(arch):
        denoiser = _own(arch, channels)
        source = extension.source_digest(extension.resolve(arch, what="denoiser.arch"))
        options = {"source": source} if source else {}
    else:
        raise InputError(
            f"denoiser.arch={arch!r} is unknown: expected {FFDNET}, {DNCNN}, {SMALL} or "
            "package.module:function"
        )
    options = {name: options[name] for name in sorted(options)}  # as they come back from a file
    denoiser.recipe = {"arch": arch, "channels": channels, "options": options}  # type: ignore
    return denoiser


def each_channel(denoiser: nn.Module, channels: int) -> nn.Module:
    """A denoiser of grey images, which `build_denoiser` made, for images of `channels` channels."""
    recipe: dict[str, Any] = denoiser.recipe  # type: ignore[assignment]
    options = dict(sorted({**recipe["options"], GREY: True}.items()))
    wrapped = EachChannel(denoiser)
    wrapped.recipe = {"arch": recipe["arch"], "channels": channels, "options": options}  # type: ignore
    return wrapped


def _known(arch: str, channels: int, options: Mapping[str, Any]) -> nn.Module:
    known = [*_usual(arch, channels), *(["dilated"] if arch == DNCNN else [])]
    if unknown := [name for name in options if name not in known]:
        raise InputError(
            f"denoiser {arch} has no option {unknown[0]!r}: expected {', '.join(known)}"
        )
    sizes = {name: options[name] for name in ("width", "depth")}
    for name, least, most in (("width", 1, 4096), ("depth", 2, 1000)):
        if not isinstance(sizes[name], int) or not least <= sizes[name] <= most:
            raise InputError(
                f"denoiser {arch}: {name}={sizes[name]!r}: expected a whole number from {least} to "
                f"{most}"
            )
    if arch == DNCNN:
        biases = options["biases"]
        if not isinstance(biases, (list, tuple)) or len(biases) != 3:
            raise InputError(
                f"denoiser {arch}: biases={biases!r}: expected a list of three, whether the first, "
                "the middle and the last convolutions have one"
            )
        norm, dilated = (bool(options.get(name)) for name in ("norm", "dilated"))
        return DnCNN(channels, norm=norm, dilated=dilated, biases=biases, **sizes)
    return (FFDNet if arch == FFDNET else SmallDenoiser)(channels, **sizes)


def _usual(arch: str, channels: int) -> dict[str, Any]:
    """The published widths and depths of FFDNet and DnCNN, and ours."""
    if arch == SMALL:
        return {"width": 48, "depth": 6}
    if arch == DNCNN:
        return {"width": 64, "depth": 17, "norm": True, "biases": [True, False, False]}
    return {"width": 64, "depth": 15} if channels == 1 else {"width": 96, "depth": 12}


def _own(arch: str, channels: int) -> nn.Module:
    function = extension.resolve(arch, what="denoiser.arch")
    try:
        denoiser = function(channels=channels)
    except InputError:
        raise
    except Exception as error:  # whatever the user's function does
        raise InputError(
            f"denoiser.arch={arch!r} failed ({type(error).__name__}: {one_line(error)}): expected "
            "a function that takes channels and returns a torch module"
        ) from error
    if not isinstance(denoiser, nn.Module):
        raise InputError(
            f"denoiser.arch={arch!r} returned a {type(denoiser).__name__}: expected a torch module "
            "`denoiser(z, sigma)`"
        )
    return denoiser
