"""The composed model in MLflow: logged from code, with signature, example and requirements,
registered by name.

    mlflow.pyfunc.load_model("models:/aces-cifar10/latest").predict(images)
    mlflow models serve -m models:/aces-cifar10/latest --env-manager local

An answer to one image is a row: prediction, class, radius, route, draws.
"""

import importlib.metadata
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.pyfunc import PythonModel
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

import aces
from aces import runtime
from aces.errors import InputError
from aces.model.composed import ACES, Certificate

ARTIFACT = "aces"
CODE = Path(__file__).with_name("served.py")
MOST_DRAWS = 2_000_000  # of a request: more would hold a thread of the server for hours
# What a server runs; the rest of the requirements belongs to the pipeline.
NEEDED = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "pandas",
    "pyyaml",
    "rich",
    "pillow",
    "safetensors",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "mlflow",
    "filelock",
    "psutil",
)


class Served(PythonModel):
    """`ACES.certify` as MLflow calls it: (N, C, H, W) float32 in [0, 1] -> a row an image."""

    def load_context(self, context) -> None:
        # The server's threads are the parallelism: one worker a request.
        self._model = ACES.load(
            context.artifacts[ARTIFACT], device=runtime.from_environment().device, workers=1
        )
        self._model.predict(
            _grey(self._model), n=100
        )  # so that the first request need not wait for the set-up

    def predict(self, context, model_input: np.ndarray, params=None) -> pd.DataFrame:
        options = dict(params or {})
        theta = options.pop("theta", self._model.theta)
        draws = len(model_input) * (options.get("n0", 0) + options.get("n", 0))
        try:
            if draws > MOST_DRAWS:
                raise InputError(
                    f"a request of {draws:,} draws ({len(model_input)} images of n0 + n): expected at most "
                    f"{MOST_DRAWS:,}; send fewer images, or ask for fewer draws"
                )
            certificates = self._model.at(theta=theta).certify(model_input, **options)
        except InputError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None  # HTTP status 400
        return pd.DataFrame([_row(certificate) for certificate in certificates])


def log_model(
    folder: str | Path,
    *,
    dataset: str,
    n0: int = 100,
    n: int = 1000,
    alpha: float = 0.001,
    example: np.ndarray | None = None,
):
    """Log what `ACES.save` wrote to `folder` in the active run, and register it as
    `aces-<dataset>`.

    n0, n, alpha: what a request gets that does not say otherwise; example: (N, C, H, W) float32 in
    [0, 1]. The library itself is stored with the model, so that it is loaded with the code that
    made it.
    """
    model = ACES.load(folder)
    if model.shape is None:
        raise InputError(
            f"{folder} does not say which images the networks take: give ACES(shape=(C, H, W)), save it again"
        )
    return mlflow.pyfunc.log_model(
        name="model",
        python_model=str(CODE),
        artifacts={ARTIFACT: str(folder)},
        code_paths=[str(Path(aces.__file__).parent)],
        signature=signature(model, n0=n0, n=n, alpha=alpha),
        input_example=_grey(model) if example is None else example,
        pip_requirements=requirements(),
        registered_model_name=f"aces-{dataset}",
    )


def signature(model: ACES, *, n0: int, n: int, alpha: float) -> ModelSignature:
    """A tensor in; class, radius and route out; the draws and alpha as parameters of a request."""
    return ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("float32"), (-1, *model.shape))]),
        outputs=Schema(
            [
                ColSpec("long", "prediction"),
                ColSpec("string", "class"),
                ColSpec("double", "radius"),
                ColSpec("string", "route"),
                ColSpec("long", "draws"),
            ]
        ),
        params=ParamSchema(
            [
                ParamSpec("n0", "long", n0),
                ParamSpec("n", "long", n),
                ParamSpec("alpha", "double", alpha),
                ParamSpec("theta", "double", model.theta),
                ParamSpec("adaptive", "boolean", True),
                ParamSpec("radius", "double", None),
                ParamSpec("seed", "long", None),
            ]
        ),
    )


def requirements() -> list[str]:
    """The pinned packages of this project that a server needs."""
    pinned = importlib.metadata.requires("aces") or []
    return [line for line in pinned if line.partition("==")[0] in NEEDED]


def _grey(model: ACES) -> np.ndarray:
    """(1, C, H, W) an image of the middle grey."""
    return np.full((1, *model.shape), 0.5, dtype=np.float32)


def _row(certificate: Certificate) -> dict:
    return {
        "prediction": certificate.prediction,
        "class": certificate.name,
        "radius": certificate.radius,
        "route": certificate.route.name.lower(),
        "draws": certificate.draws,
    }
