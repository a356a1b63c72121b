"""Requests to the server: any bytes may arrive."""

import io
import json
import math
import random
from pathlib import Path

import numpy as np
from PIL import Image

from aces.model.requests import as_row, read_request

from .damage import ODD_NUMBERS, ODD_TEXTS, damaged_bytes
from .engine import expect

DEFAULTS = {"n0": 10, "n": 50, "alpha": 0.001, "seed": 0}
MOST_DRAWS = 500  # of a case: what asks for more is only read
NAMES = ("n0", "n", "alpha", "theta", "adaptive", "radius", "seed", "sigma", "alhpa", "")


class Requests:
    name = "requests"

    def prepare(self, folder: Path) -> None:
        from small_models import half_space_model

        self._model = half_space_model()
        buffer = io.BytesIO()
        Image.fromarray(np.full((9, 7, 3), 200, dtype=np.uint8)).save(buffer, "PNG")
        self._image = buffer.getvalue()

    def run(self, rng: random.Random, folder: Path) -> str:
        body, kind, query = self._image_body(rng) if rng.random() < 0.3 else self._json(rng)
        request = read_request(body, kind, query, model=self._model, defaults=DEFAULTS)
        if request.draws > MOST_DRAWS:
            return "accepted"
        model = self._model.at(theta=request.theta)
        rows = [as_row(it) for it in model.certify(request.images, **request.options)]
        expect(len(rows) == len(request.images), "not one answer for each image")
        for row in rows:
            expect(row["prediction"] in (-1, 0, 1), f"the class {row['prediction']}")
            expect(math.isfinite(row["radius"]) and row["radius"] >= 0, f"radius {row['radius']}")
        json.dumps(rows)
        return "accepted"

    def _image_body(self, rng: random.Random) -> tuple[bytes, str, dict[str, str]]:
        body = damaged_bytes(self._image, rng) if rng.random() < 0.7 else self._image
        query = {rng.choice(NAMES): str(_odd(rng)) for _ in range(rng.randrange(3))}
        return body, rng.choice(("image/png", "image/jpeg", "image/")), query

    def _json(self, rng: random.Random) -> tuple[bytes, str, dict[str, str]]:
        channels, height, width = self._model.shape
        images: object = [[[[0.5] * width] * height] * channels] * rng.choice((1, 2))
        kind = rng.randrange(6)
        if kind == 0:
            images = _odd(rng)
        elif kind == 1:
            images = [[[[_odd(rng)] * width] * height] * channels]
        elif kind == 2:
            images = [[[[0.5] * rng.randrange(6)] * rng.randrange(6)] * rng.randrange(5)]
        content: object = {rng.choice(("inputs", "inputs", "instances", "data")): images}
        if rng.random() < 0.7:
            names = [rng.choice(NAMES) for _ in range(rng.randrange(3))]
            content["params"] = {name: _odd(rng) for name in names}  # type: ignore[index]
        if rng.random() < 0.1:
            content = _odd(rng)
        body = json.dumps(content).encode("utf-8", "surrogatepass")
        if kind == 3:
            body = damaged_bytes(body, rng)
        elif kind == 4 and rng.random() < 0.2:
            body = b"[" * 100_000
        return body, "application/json", {}


def _odd(rng: random.Random) -> object:
    odd = (*ODD_NUMBERS, *ODD_TEXTS, True, [], {}, [[]], "100", "0.01", 20, 0.01, 0.5)
    return None if rng.random() < 0.1 else rng.choice(odd)
