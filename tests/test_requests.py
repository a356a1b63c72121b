"""What a request to the server asks for: every part of it is checked before anything is drawn."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from aces import ACES
from aces.errors import InputError
from aces.model import requests
from aces.model.requests import Request, check_size, make_request, read_request
from small_models import HalfSpace, half_space_model

DEFAULTS = {"n0": 10, "n": 50, "alpha": 0.001, "seed": 0}
GREY = np.full((1, 1, 4, 4), 0.5).tolist()


def read(content, *, kind="application/json", query=None, model=None, **params) -> Request:
    if kind == "application/json":
        content = content | {"params": params} if params else content
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_request(
        content, kind, query or {}, model=model or half_space_model(), defaults=DEFAULTS
    )


def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4), 200, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_what_is_given_goes_before_the_defaults():
    request = read({"inputs": GREY}, n=60, alpha="0.01", theta=0.25, adaptive="True")
    assert request.options == {"n0": 10, "n": 60, "alpha": 0.01, "seed": 0, "adaptive": True}
    assert request.theta == 0.25 and request.draws == 70
    np.testing.assert_array_equal(request.images, np.float32(GREY))
    assert read({"instances": GREY}, n=None).options == DEFAULTS
    assert read({"inputs": GREY}).theta == half_space_model().theta
    assert read({"inputs": GREY}, query={"n": "70"}, n=80).options["n"] == 80


def test_parameters_of_an_image_file_stand_in_the_address():
    request = read(png(), kind="image/png", query={"n": "70", "adaptive": "false"})
    assert request.options == DEFAULTS | {"n": 70, "adaptive": False}
    assert request.images.shape == (1, 4, 4, 1) and (request.images == 200).all()


@pytest.mark.parametrize(
    "content, message",
    [
        (b"not json", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"\xff\xfe\xfd", "the body is not JSON"),
        (b"7", "the body has no images"),
        ({"images": GREY}, "the body has no images"),
        ({"inputs": GREY, "instances": GREY}, "the body has no images"),
        ({"inputs": GREY, "parms": {}}, "the body has the unknown 'parms'"),
        ({"inputs": GREY, "params": [1]}, r"params=\[1\]: expected names and values"),
        ({"inputs": []}, r"inputs \[\]: expected images of shape"),
        ({"inputs": [[]]}, r"inputs of shape \(1, 0\): expected images of shape"),
        ({"inputs": GREY[0]}, r"inputs of shape \(1, 4, 4\): expected images of shape"),
        ({"inputs": [[[["grey"] * 4] * 4]]}, "inputs are not numbers in the shape"),
        ({"inputs": [[[[{}] * 4] * 4]]}, "inputs are not numbers in the shape"),
        ({"inputs": [[[[0.5] * 4] * 3 + [[0.5]]]]}, "inputs are not numbers in the shape"),
        ({"inputs": np.zeros((1, 1, 9, 9)).tolist()}, r"\(N, C, H, W\) = \(N, 1, 4, 4\)"),
    ],
)
def test_a_wrong_body_is_refused(content, message):
    with pytest.raises(InputError, match=message):
        read(content)


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("n", True, "n=True: expected a whole number"),
        ("n", 70.5, "n=70.5: expected a whole number"),
        ("n", "many", "n=many: expected a whole number"),
        ("n0", [10], r"n0=\[10\]: expected a whole number"),
        ("seed", {}, "seed={}: expected a whole number"),
        ("alpha", False, "alpha=False: expected a number in"),
        ("alpha", [0.1], r"alpha=\[0.1\]: expected a number in"),
        ("radius", "far", "radius=far: expected a number above 0"),
        ("adaptive", 1, "adaptive=1: expected true or false"),
        ("adaptive", "perhaps", "adaptive=perhaps: expected true or false"),
        ("alhpa", 0.1, "unknown 'alhpa': did you mean alpha"),
        ("colour", "red", "unknown 'colour': expected n0, n"),
        ("n", requests.MOST_DRAWS, "a request of 2,000,010 draws"),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_name(name, value, expected):
    with pytest.raises(InputError, match=expected):
        read({"inputs": GREY}, **{name: value})


def test_as_many_draws_as_are_allowed_are_accepted():
    most = requests.MOST_DRAWS - DEFAULTS["n0"]
    assert read({"inputs": GREY}, n=most).draws == requests.MOST_DRAWS


def test_a_body_may_have_so_many_bytes():
    check_size(requests.MOST_BYTES)
    with pytest.raises(InputError, match="expected at most 268,435,456"):
        check_size(requests.MOST_BYTES + 1)


def test_a_model_that_does_not_say_which_images_it_takes():
    model = ACES(core=HalfSpace(), certify=HalfSpace(), sigma=0.25, theta=0.5, num_classes=2)
    with pytest.raises(InputError, match="does not say which images it takes"):
        read(png(), kind="image/png", model=model)
    images = np.zeros((2, 1, 9, 9), dtype=np.float32)
    assert make_request(images, {}, model=model, defaults=DEFAULTS).draws == 120
