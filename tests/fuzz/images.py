"""Image files of every format Pillow writes, damaged, huge, odd, or not files at all."""

import io
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from aces.data.images import read_image

from .damage import damaged_bytes
from .engine import expect

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO", "PCX", "SGI", "DDS")
MODES = ("RGB", "L", "RGBA", "P", "1", "CMYK", "LAB", "I;16", "I", "F", "YCbCr", "HSV")
SHAPES = ((3, 32, 32), (1, 8, 8), (3, 64, 48))


class Images:
    name = "images"

    def prepare(self, folder: Path) -> None:
        values = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
        picture, self._files = Image.fromarray(values), []
        for format_ in FORMATS:
            for mode in MODES:
                buffer = io.BytesIO()
                try:
                    _as_mode(picture, mode).save(buffer, format_)
                except Exception:  # not every format holds every mode
                    continue
                self._files.append(buffer.getvalue())

    def run(self, rng: random.Random, folder: Path) -> str:
        path = folder / rng.choice(("image.png", "image.jpg", "image", "a b.tiff"))
        kind = rng.randrange(10)
        if kind == 0:
            path.write_bytes(_png_of_size(rng))
        elif kind == 1:
            rng.choice((path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(path)))()
        else:
            data = rng.choice(self._files)
            path.write_bytes(damaged_bytes(data, rng) if kind < 8 else data)
        shape = rng.choice(SHAPES)
        resize = rng.choice((None, None, 16, 100))
        if resize is not None and resize < max(shape[1:]):
            resize = None
        found = read_image(path, shape=shape, resize=resize)
        expected = (*shape[1:], shape[0])
        expect(found.shape == expected, f"its shape is {found.shape}, not {expected}")
        expect(found.dtype == np.uint8, f"it is {found.dtype}")
        return "accepted"


def _as_mode(picture: Image.Image, mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    if mode == "LAB":
        return Image.frombytes("LAB", picture.size, picture.tobytes())
    return picture.convert(mode)


def _png_of_size(rng: random.Random) -> bytes:
    """A PNG that claims any size and has no pixels."""
    sides = (0, 1, 2, 60_000, 100_000, 2**31 - 1)
    header = struct.pack(">IIBBBBB", rng.choice(sides), rng.choice(sides), 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
