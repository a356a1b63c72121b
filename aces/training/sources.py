"""Training images as batches: an array lives on the device as one tensor, a folder is read by
worker processes.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aces import runtime
from aces.data import TrainSet
from aces.data.images import read_crop, read_images
from aces.errors import InputError
from aces.training.augment import Views, crop, draw_views

MAX_WORKERS = 16


class ArraySource:
    """All images on the device, uint8; every epoch has one random view of each."""

    def __init__(self, data: TrainSet, device: torch.device):
        self.image = torch.from_numpy(np.ascontiguousarray(data.image)).to(device)
        self.label = torch.from_numpy(data.label).to(device)
        self.mirror = mirrors(data)

    def batches(self, order: Tensor, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each row of `order` (steps, B); `seed` chooses the views."""
        generator = torch.Generator().manual_seed(seed)
        views = draw_views(tuple(self.image.shape), generator, mirror=self.mirror)
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
        self.shape, self.mirror = data.shape, mirrors(data)

    def batches(self, order: Tensor, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        # The processes that torchrun started on this machine share its cores.
        share = runtime.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        loader: DataLoader[Tensor] = DataLoader(
            _Files(self.names, seed, self.shape, self.mirror),
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
    """A worker's error arrives with its traceback as text; the message is the last line of it."""
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


def training_images(data: TrainSet, rows: np.ndarray) -> np.ndarray:
    """These training images without augmentation: (B, H, W, C) uint8."""
    if isinstance(data.image, np.ndarray):
        return data.image[rows]
    return read_images([data.image[row] for row in rows], shape=data.shape, resize=data.resize)


@dataclass(frozen=True)
class _Files(Dataset[Tensor]):
    """The files of a folder as random crops; the crop depends on (seed, file) only, never on the
    worker.
    """

    names: np.ndarray  # (N,) bytes: the files' paths
    seed: int
    shape: tuple[int, int, int]  # (C, H, W) of a crop
    mirror: bool  # whether half of the crops are mirror images

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Tensor:
        """(H, W, C) uint8."""
        random, path = np.random.default_rng((self.seed, row)), os.fsdecode(self.names[row])
        image = read_crop(
            path, shape=self.shape, choose=lambda width, height: random_box(width, height, random)
        )
        pixels = torch.from_numpy(image)
        return pixels.flip(1) if random.random() < 0.5 and self.mirror else pixels


def mirrors(data: TrainSet) -> bool:
    """Whether an image's mirror image has the same class: as the dataset says, else true of colour
    images. Grey ones are often digits or letters.
    """
    return data.shape[0] == 3 if data.mirror is None else data.mirror


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
