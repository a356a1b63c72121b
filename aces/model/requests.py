"""A request to the server: what its bytes ask for, every part checked, and the answer as plain
values.

A body is either JSON, `{"inputs": [[[[0.1, ...]]]], "params": {"n": 1000}}` with images (N, C, H,
W) in [0, 1], or an image file, whose parameters stand in the address: `/invocations?n=1000`.
"""

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aces.data.images import read_image
from aces.errors import InputError, one_line
from aces.model.certificates import Certificate
from aces.model.composed import ACES
from aces.networks.resolution import own_size

MOST_DRAWS = 2_000_000  # per request: more would occupy a thread of the server for hours
MOST_BYTES = 256 * 2**20  # per request
IMAGES = ("inputs", "instances")  # the keys under which the scoring protocol knows tensors


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    return int(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    return float(value)


def _truth(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError
    return value


# name -> how a value is read, and what is expected, in words
PARAMETERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "n0": (_whole, "a whole number"),
    "n": (_whole, "a whole number"),
    "alpha": (_number, "a number in (0, 1)"),
    "theta": (_number, "a number from 0 to 1"),
    "adaptive": (_truth, "true or false"),
    "radius": (_number, "a number above 0"),
    "seed": (_whole, "a whole number"),
}


@dataclass(frozen=True)
class Request:
    """Images, and how they are to be certified."""

    images: "np.ndarray | list[bytes]"  # (N, C, H, W) float32, (N, H, W, C) uint8, or files
    theta: float
    options: dict[str, Any]  # of ACES.certify

    @property
    def draws(self) -> int:
        """How many draws it may take: fewer where images stop early."""
        return len(self.images) * (self.options["n0"] + self.options["n"])


def read_request(
    body: bytes,
    kind: str,
    query: Mapping[str, str],
    *,
    model: ACES,
    defaults: Mapping[str, Any],
) -> Request:
    """What a request asks for. kind: the content type; query: parameters of the address."""
    if not kind.startswith("image/"):
        images, given = _tensor(body)
        return make_request(images, dict(query) | given, model=model, defaults=defaults)
    request = make_request(_image(body, model), query, model=model, defaults=defaults)
    if own_size(model.networks["core"]) is not None:  # the model reads the file once more for it
        request = replace(request, images=[body])
    return request


def check_size(size: int) -> None:
    """InputError for a body of so many bytes, if they are too many."""
    if size > MOST_BYTES:
        raise InputError(f"a body of {size:,} bytes or more: expected at most {MOST_BYTES:,}")


def make_request(
    images: np.ndarray, given: Mapping[str, Any], *, model: ACES, defaults: Mapping[str, Any]
) -> Request:
    """A request from images and parameters; those not given, or given as null, have their defaults."""
    options = _given(defaults) | _given(_parameters(given))
    if images.dtype != np.uint8 and model.shape is not None and images.shape[1:] != model.shape:
        raise InputError(
            f"inputs of shape {images.shape}: this model takes (N, C, H, W) = (N, "
            f"{', '.join(map(str, model.shape))})"
        )
    request = Request(images, options.pop("theta", model.theta), options)
    if request.draws > MOST_DRAWS:
        raise InputError(
            f"a request of {request.draws:,} draws ({len(images)} images of n0 + n): expected at "
            f"most {MOST_DRAWS:,}; send fewer images, or ask for fewer draws"
        )
    return request


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in given.items():
        if name not in PARAMETERS:
            close = difflib.get_close_matches(str(name), PARAMETERS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise InputError(
                f"params has the unknown {str(name)[:40]!r}: {hint}expected {', '.join(PARAMETERS)}"
            )
        read, expected = PARAMETERS[name]
        try:
            values[name] = None if value is None else read(value)
        except (ValueError, OverflowError):
            raise InputError(f"{name}={str(value)[:40]}: expected {expected}") from None
    return values


def _tensor(body: bytes) -> tuple[np.ndarray, dict[str, Any]]:
    """The images and parameters of a JSON body."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"the body is not JSON ({one_line(error)}): expected "
            '{"inputs": images, "params": {...}}, or an image file'
        ) from None
    if not isinstance(content, dict) or sum(key in content for key in IMAGES) != 1:
        raise InputError('the body has no images: expected {"inputs": [...], "params": {...}}')
    unknown = [str(key)[:40] for key in content if key not in (*IMAGES, "params")]
    if unknown:
        raise InputError(f"the body has the unknown {unknown[0]!r}: expected inputs and params")
    given = content.get("params") or {}
    if not isinstance(given, dict):
        raise InputError(f"params={str(given)[:40]}: expected names and values in braces")
    inputs = next(content[key] for key in IMAGES if key in content)
    return _as_array(inputs), given


def _as_array(inputs: object) -> np.ndarray:
    try:
        images = np.asarray(inputs, dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"inputs are not numbers in the shape (N, C, H, W): {one_line(error)}"
        ) from None
    if images.ndim != 4 or not images.size:
        shown = "[]" if inputs == [] else f"of shape {images.shape}"
        raise InputError(f"inputs {shown}: expected images of shape (N, C, H, W), in [0, 1]")
    return images


def _image(body: bytes, model: ACES) -> np.ndarray:
    """(1, H, W, C) the image file in a body."""
    if model.shape is None:
        raise InputError("the model does not say which images it takes: send inputs as JSON")
    return read_image(body, shape=model.shape, resize=model.resize, name="in the body")[None]


def as_row(certificate: Certificate) -> dict[str, Any]:
    """A certificate as a row of the answer."""
    row = certificate.as_dict()
    leading = {"prediction": row.pop("prediction"), "class": row.pop("name")}
    del row["values"]
    return leading | row
