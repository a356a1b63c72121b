"""The default networks as `make repro` trained them, with the first evaluation images: kept here,
so that what they promise is tested on every clone. Called as a script in a finished run of the
profile `laptop`, it takes them anew:

    python tests/default_networks.py
"""

import dataclasses
import functools
import shutil
from pathlib import Path

from aces import ACES, data, networks

FOLDER = Path(__file__).parent / "default"
IMAGES = 60


@functools.cache
def default_model(theta: float = 0.5) -> ACES:
    info = data.info("cifar10")
    trained = {
        role: networks.load_model(FOLDER / f"{role}.safetensors") for role in ("core", "certify")
    }
    sigma = float(networks.read_metadata(FOLDER / "certify.safetensors")["sigma"])
    return ACES(
        **trained, sigma=sigma, theta=theta, num_classes=10, classes=info.classes, shape=info.shape
    )


@functools.cache
def default_images() -> data.EvalSet:
    return data.read_eval(FOLDER / "eval.npz")


def take() -> None:
    FOLDER.mkdir(exist_ok=True)
    for role in ("core", "certify"):
        shutil.copyfile(f"models/{role}.safetensors", FOLDER / f"{role}.safetensors")
    whole = data.read_eval("data/cifar10/eval.npz")
    data.write_eval(
        FOLDER / "eval.npz",
        dataclasses.replace(
            whole,
            image=whole.image[:IMAGES],
            label=whole.label[:IMAGES],
            index=whole.index[:IMAGES],
        ),
    )


if __name__ == "__main__":
    take()
