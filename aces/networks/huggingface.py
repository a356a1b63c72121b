"""Image classifiers of Hugging Face, as `hf/<repository>` or `hf/<folder>`.

Their own preprocessing (resizing, cropping, mean and standard deviation) becomes part of the
network, in torch operations. So noise is added to pixels in [0, 1] at the size of the dataset, as
everywhere. Code from a repository is never run: only architectures of transformers are built.
"""

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aces.errors import InputError, one_line

# Pillow's numbers for the ways to resize, as preprocessor_config.json has them.
_MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}
_KEYS = (
    "do_resize",
    "size",
    "resample",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
)


class HuggingFaceNetwork(nn.Module):
    """Pixels in [0, 1] (N, C, H, W) -> logits (N, K): preprocessing, then the model."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Any]):
        super().__init__()
        self.model = model
        self.resize, self.crop = _sizes(preprocessing)
        self.mode = _MODES.get(preprocessing.get("resample", 2), "bilinear")
        scale = 255 * preprocessing.get("rescale_factor", 1 / 255)
        if not preprocessing.get("do_rescale", True):
            scale = 255.0
        normalizes = preprocessing.get("do_normalize", True)
        mean = preprocessing.get("image_mean", [0.5]) if normalizes else [0.0]
        std = preprocessing.get("image_std", [0.5]) if normalizes else [1.0]
        # (x * scale - mean) / std, with the scale taken into mean and std.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1) / scale)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1) / scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.resize is not None:
            x = self._resized(x)
        if self.crop is not None:
            height, width = self.crop
            top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
            x = x[..., max(top, 0) : max(top, 0) + height, max(left, 0) : max(left, 0) + width]
        return self.model(pixel_values=(x - self.mean) / self.std).logits

    def _resized(self, x: Tensor) -> Tensor:
        assert self.resize is not None
        height, width = self.resize
        if width == 0:  # the shorter side gets this size
            scale = height / min(x.shape[-2:])
            height, width = (max(height, round(side * scale)) for side in x.shape[-2:])
        if (height, width) == tuple(x.shape[-2:]):
            return x
        smooth = self.mode != "nearest"
        options: dict[str, Any] = {"antialias": True, "align_corners": False} if smooth else {}
        return F.interpolate(x, size=(height, width), mode=self.mode, **options)


def _sizes(
    preprocessing: Mapping[str, Any],
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """(height, width) to resize to, with width 0 for "the shorter side", and to crop to."""

    def pair(value: Any) -> tuple[int, int]:
        if isinstance(value, Mapping) and "shortest_edge" in value:
            return int(value["shortest_edge"]), 0
        if isinstance(value, Mapping):
            return int(value["height"]), int(value["width"])
        return int(value), int(value)

    resizes, crops = preprocessing.get("do_resize"), preprocessing.get("do_center_crop")
    resize = pair(preprocessing["size"]) if resizes and preprocessing.get("size") else None
    crop = pair(preprocessing["crop_size"]) if crops and preprocessing.get("crop_size") else None
    return resize, crop


def network(name: str, *, num_classes: int, channels: int, options: Mapping[str, Any]) -> nn.Module:
    """A fresh network of the architecture that a repository, or the options of a saved file,
    describe.
    """
    transformers = _transformers(name)
    if not options:
        options = describe(name)
    try:
        values = dict(options["config"])
        config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
        config.num_labels, config.num_channels = num_classes, channels
        model = transformers.AutoModelForImageClassification.from_config(config)
        return HuggingFaceNetwork(model, options["preprocessing"])
    except Exception as error:  # a repository may describe anything
        raise InputError(
            f"arch='hf/{name}' cannot be built ({one_line(error)}): expected an image classifier "
            "of transformers"
        ) from None


def describe(name: str) -> dict[str, Any]:
    """What it takes to build the network of a repository again without asking the repository."""
    transformers = _transformers(name)
    config = _from_hub(name, lambda: transformers.AutoConfig.from_pretrained(name))
    return {
        "config": json.loads(config.to_json_string(use_diff=False)),
        "preprocessing": _preprocessing(name),
    }


def _preprocessing(name: str) -> dict[str, Any]:
    from transformers.utils import cached_file

    path = _from_hub(name, lambda: cached_file(name, "preprocessor_config.json"))
    try:
        with open(path) as file:
            found = json.load(file)
        return {key: found[key] for key in _KEYS if key in found}
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"hf/{name} has no preprocessor_config.json that can be read ({one_line(error)}): "
            "expected an image classifier"
        ) from None


def pretrained(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network with the weights of its repository, and the options that build it again."""
    transformers = _transformers(name)
    options = describe(name)
    loader = transformers.AutoModelForImageClassification.from_pretrained
    model = _from_hub(name, lambda: loader(name, use_safetensors=True))
    try:
        return HuggingFaceNetwork(model, options["preprocessing"]).eval(), options
    except Exception as error:  # the file may hold anything
        raise InputError(
            f"hf/{name} has a preprocessor_config.json that cannot be used "
            f"({type(error).__name__}: {one_line(error)}): expected the size, crop_size, image_mean "
            "and image_std of an image classifier"
        ) from None


def _from_hub(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # no such repository, no network, a damaged file, no classifier
        raise InputError(
            f"hf/{name} cannot be loaded ({one_line(error)}): fetch its folder on a machine with "
            f"internet (`huggingface-cli download {name} --local-dir FOLDER`) and name hf/FOLDER"
        ) from None


def _transformers(name: str) -> Any:
    try:
        importlib.import_module("aces.vision")  # transformers needs a torchvision that imports
        return importlib.import_module("transformers")
    except ModuleNotFoundError:
        raise InputError(
            f"arch='hf/{name}' needs transformers, which is not installed: `pip install "
            "transformers`"
        ) from None
