"""What a network must be before its draws are counted: a function from an image to logits, the
same one however it is run.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from aces.errors import InputError, one_line
from aces.networks.quantized import QuantizedNetwork

# (D, C, H, W) -> logits (D, K), and of a selection network (D, 2). Nothing changes them later: a
# network that returns a part of its input, or a buffer of its own, is copied from.
Forward = Callable[[Tensor], list[Tensor]]

_TOLERANCE = 1e-2  # relative to the logits: far above rounding (3e-4), far below another network
_INT8 = 0.25  # relative to the logits, for an int8 network by two runtimes: 0.05 for a ResNet-56
_SAME = 1e-5  # relative to the logits, for a network run twice in the same way: near rounding
# Relative to the logits, for a draw in another place of its batch: above the rounding of each
# precision. Kernels give the same bits in every place as a rule, but do not promise it.
_ROWS = {"float32": 1e-4, "int8": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
_NAMES = ("network", "selection network")
_LEVELS = (0.0, 0.25, 0.5, 1.0)  # standard deviations of the noise on the four example images


def check_precision(model: nn.Module, precision: str, device: torch.device) -> None:
    """int8 is a network of its own, which runs on a CPU."""
    quantized = isinstance(model, QuantizedNetwork)
    if quantized and precision != "int8":
        raise InputError(f"precision={precision!r} for an int8 network: expected precision='int8'")
    if not quantized and precision == "int8":
        raise InputError(
            "precision='int8' for a float32 network: make it int8 first, by "
            "aces.sampling.quantise(network, images, sigma=sigma)"
        )
    if quantized and device.type != "cpu":
        raise InputError("precision='int8' runs on a CPU: set device='cpu' (ACES_DEVICE=cpu)")


@torch.inference_mode()
def check_logits(module: nn.Module, example: Tensor, *, num_classes: int) -> tuple[Tensor, ...]:
    """The networks' logits; InputError unless they are of the right number, and the same for an
    image on its own.
    """
    shape = tuple(example.shape[1:])
    try:
        together = run(module, example)
        alone = run(module, example[:1])
    except Exception as error:
        raise InputError(
            f"the network cannot run images of shape {shape}: {one_line(error)}"
        ) from error
    for name, logits, single, expected in zip(
        _NAMES, together, alone, (num_classes, 2), strict=False
    ):
        if not isinstance(logits, Tensor) or logits.shape != (len(example), expected):
            found = (
                f"shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else type(logits).__name__
            )
            raise InputError(
                f"the {name} gives {found} for {len(example)} images: expected logits of shape "
                f"({len(example)}, {expected}), one for each class"
            )
        if not agree(logits[:1], single):
            raise _not_a_function(name)
    return together


@torch.inference_mode()
def check_rows(
    forward: Forward,
    shape: tuple[int, int, int],
    *,
    batch: int,
    precision: str,
    device: torch.device,
) -> None:
    """InputError unless a draw's logits are the same in every place of a batch, beside every other
    draw, and however often it is run.

    This is what a certificate assumes of a network. So it is looked at with batches of the size
    that is drawn, by what runs them: a full batch, the same with its rows in another order, every
    second row beside empty and beside very noisy images, and the first batch again; then noisy
    copies of one image, as the draws are, in two orders. It finds mistakes, not malice: a network
    can always be built that behaves here and nowhere else.
    """
    source = torch.Generator().manual_seed(1)
    images, noise, others = (torch.randn((batch, *shape), generator=source) for _ in range(3))
    noise *= torch.linspace(0, 1, batch)[:, None, None, None]
    images = images.abs().clamp(0, 1) + noise
    copies = images[:1] + noise / 4
    places, order = torch.arange(batch), torch.randperm(batch, generator=source)
    kept = places % 2 == 0
    beside = torch.where(kept[:, None, None, None], images, 4 * others)
    alone = torch.where(kept[:, None, None, None], images, 0.0)
    shuffled = (images[order], order, places)
    half = [(x, places, places[kept]) for x in (beside, alone)]
    for whole, attempts in (
        (images, [shuffled, *half, (images, places, places)]),
        (copies, [(copies[order], order, places)]),
    ):
        first = [each.cpu() for each in forward(whole.to(device))]
        for x, rows, same in attempts:
            for name, given, found in zip(_NAMES, first, forward(x.to(device)), strict=False):
                if not agree(given[rows][same], found.cpu()[same], tolerance=_ROWS[precision]):
                    raise _not_a_function(name)


def _not_a_function(name: str) -> InputError:
    return InputError(
        f"the {name}'s answer for an image depends on the other images of its batch, or on chance: "
        "no certificate can hold; does a layer use batch statistics or dropout in eval mode?"
    )


def run(module: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """The networks' logits of a copy of x: a network may change its input in place."""
    return module(x.clone())


@torch.inference_mode()
def computes(module: nn.Module, example: Tensor, logits: list[Tensor]) -> bool:
    """Whether the networks still give these logits: not all of what they compute with need be in
    their state dicts.
    """
    return all(map(functools.partial(agree, tolerance=_SAME), logits, run(module, example)))


def example_images(shape: tuple[int, int, int]) -> Tensor:
    """(4, C, H, W) the same images each time, on which ways to run a network are compared: noisy
    ones that leave [0, 1] as the draws do, because a network may behave differently there.
    """
    source = torch.Generator().manual_seed(0)
    images = torch.rand((len(_LEVELS), *shape), generator=source)
    noise = torch.randn(images.shape, generator=source)
    return images + torch.tensor(_LEVELS)[:, None, None, None] * noise


@torch.inference_mode()
def check_same(forward: Forward, module: nn.Module, example: Tensor) -> None:
    """The exported network is the one that was given: by its logits, also for a batch of another
    size.
    """
    for x in (example, example[:1]):
        for given, found in zip(run(module, x), forward(x), strict=True):
            if not agree(given, found):
                raise RuntimeError("its logits differ after export")


@torch.inference_mode()
def runs_int8(forward: Forward, module: nn.Module, example: Tensor, *, batch: int) -> bool:
    """Whether another runtime gives the logits of an int8 network, nearly: which values are rounded
    to 8 bits is for a runtime to choose.
    """
    places = torch.arange(batch) % len(example)  # a full batch, the one size that is drawn with
    x = example[places]
    return all(map(functools.partial(agree, tolerance=_INT8), run(module, x), forward(x)))


def agree(a: Tensor, b: Tensor, tolerance: float = _TOLERANCE) -> bool:
    """Whether two tensors of logits are the same up to a tolerance, relative to the largest one."""
    scale = a.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    return a.shape == b.shape and torch.allclose(
        a.float(), b.float(), rtol=0, atol=tolerance * (scale + 1e-3), equal_nan=True
    )
