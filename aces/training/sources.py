"""Training images as batches: an array lives on the device as one tensor, a folder is read by
worker processes.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from aces import runtime
from aces.data import TrainSet
from aces.errors import InputError
from aces.training.augment import Views, crop, draw_views

FOLDER_SIZE = 224  # the side of the images cropped from a folder's files
MAX_WORKERS = 16


class ArraySource:
    """All images on the device, uint8; every epoch has one random view of each."""

    def __init__(self, data: TrainSet, device: torch.device):
        self.image = torch.from_numpy(np.ascontiguousarray(data.image)).to(device)
        self.label = torch.from_numpy(data.label).to(device)

    def batches(self, order: Tensor, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each row of `order` (steps, B); `seed` chooses the views."""
        views = draw_views(tuple(self.image.shape), torch.Generator().manual_seed(seed))
        views = Views(views.shift.to(self.image.device), views.mirror.to(self.image.device))
        for rows in order.to(self.image.device):
            yield crop(self.image, rows, views), self.label[rows]


class FolderSource:
    """Image files, decoded, cropped and flipped by worker processes while the network trains."""

    def __init__(self, data: TrainSet, device: torch.device):
        # One array of names: a list of a million paths would be copied to each worker, piece by
        # piece, in every epoch.
        self.names = np.array([os.fsencode(path) for path in data.image])
        self.label, self.device = torch.from_numpy(data.label), device

    def batches(self, order: Tensor, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        share = runtime.cores() // int(
            os.environ.get("LOCAL_WORLD_SIZE", 1)
        )  # torchrun's processes share the machine
        loader = DataLoader(
            _Files(self.names, seed),
            batch_sampler=order.tolist(),
            pin_memory=self.device.type == "cuda",
            num_workers=min(MAX_WORKERS, max(1, share)),
        )
        for rows, image in zip(order, _in_one_line(loader), strict=True):
            yield (
                image.to(self.device, non_blocking=True).float().div_(255).permute(0, 3, 1, 2),
                self.label[rows].to(self.device),
            )


def _in_one_line(loader: DataLoader) -> Iterator[Tensor]:
    """A worker's error arrives with its traceback; its last line is what was said."""
    try:
        yield from loader
    except InputError as error:
        raise InputError(
            str(error).strip().splitlines()[-1].partition("InputError: ")[2] or str(error)
        ) from None


def open_source(data: TrainSet, device: torch.device) -> ArraySource | FolderSource:
    return (
        ArraySource(data, device)
        if isinstance(data.image, np.ndarray)
        else FolderSource(data, device)
    )


@dataclass(frozen=True)
class _Files:
    """The files of a folder as random crops; the crop depends on (seed, file) only, never on the
    worker.
    """

    names: np.ndarray  # (N,) bytes: the files' paths
    seed: int

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Tensor:
        """(S, S, 3) uint8."""
        random, path = np.random.default_rng((self.seed, row)), os.fsdecode(self.names[row])
        try:
            with Image.open(path) as file:
                box = random_box(file.width, file.height, random)
                image = file.convert("RGB").resize(
                    (FOLDER_SIZE, FOLDER_SIZE), Image.Resampling.BILINEAR, box=box
                )
        except OSError as error:
            raise InputError(
                f"training image {path} cannot be read ({error}): replace or remove it"
            ) from None
        pixels = torch.from_numpy(np.array(image))
        return pixels.flip(1) if random.random() < 0.5 else pixels


def random_box(
    width: int, height: int, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """A random part of an image (left, top, right, bottom): 8 % to 100 % of its area, sides 3:4 to
    4:3, as usual for ImageNet.
    """
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            break
    else:
        w = h = min(width, height)
    left, top = random.uniform(0, width - w), random.uniform(0, height - h)
    return left, top, left + w, top + h
