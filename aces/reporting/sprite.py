"""All thumbnails of a page in one picture."""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

SIDE = 64  # pixels of a thumbnail at most


@dataclass(frozen=True)
class Sprite:
    uri: str  # the picture as a data URI
    columns: int
    rows: int
    native: bool  # the thumbnails are the images themselves, pixel by pixel


def make_sprite(images: np.ndarray) -> Sprite:
    """images: (N, H, W, C) uint8, side by side in order, row by row; large ones made small."""
    count, height, width, channels = images.shape
    native = max(height, width) <= SIDE
    scale = 1 if native else SIDE / max(height, width)
    size = round(width * scale), round(height * scale)
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    mode = "L" if channels == 1 else "RGB"
    sheet = Image.new(mode, (columns * size[0], rows * size[1]))
    for place, pixels in enumerate(images):
        image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
        if not native:
            image = image.resize(size, Image.Resampling.LANCZOS)
        sheet.paste(image, (place % columns * size[0], place // columns * size[1]))
    file = io.BytesIO()
    sheet.save(file, "WEBP", lossless=native, quality=80)
    uri = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    return Sprite(uri=uri, columns=columns, rows=rows, native=native)
