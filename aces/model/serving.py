"""The composed model in MLflow: logged from code, with signature, example and requirements,
registered by name.

    mlflow.pyfunc.load_model("models:/aces-cifar10/latest").predict(images)
    mlflow models serve -m models:/aces-cifar10/latest --env-manager local

The answer has one row per image: class, radius, route, and all that they depend on. Only this
module and `endpoint` know MLflow; the rest of the library works without it.
"""

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.pyfunc import PythonModel
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

import aces
from aces import paths, runtime
from aces.errors import InputError
from aces.model.composed import ACES
from aces.model.requests import as_row, make_request

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

ARTIFACT = "aces"
CODE = Path(__file__).with_name("served.py")
# What a server runs; the rest of the requirements belongs to the pipeline.
NEEDED = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "pandas",
    "pydantic",
    "pyyaml",
    "rich",
    "pillow",
    "safetensors",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "mlflow",
    "numba",
    "filelock",
    "psutil",
)
COLUMNS = {
    "prediction": "long",
    "class": "string",
    "radius": "double",
    "route": "string",
    "p_select": "double",
    "p_class": "double",
    "alpha": "double",
    "draws": "long",
    "invalid": "long",
    "seed": "long",
    "rounding": "double",
    "sigma": "double",
    "theta": "double",
    "rule": "string",
    "noise": "string",
    "precision": "string",
    "backend": "string",
    "generator": "string",
    "tv": "double",
    "model": "string",
    "core": "string",
    "n0": "long",
    "n": "long",
}


class Served(PythonModel):
    """`ACES.certify` as MLflow calls it: (N, C, H, W) float32 in [0, 1] -> one row per image."""

    def load_context(self, context: Any) -> None:
        model = ACES.load(context.artifacts[ARTIFACT])
        # The server's threads are the parallelism, so one request has one worker.
        where = replace(runtime.from_environment(), workers=1, progress=False)
        self._model = model.running(where)
        if "mlflow.pyfunc.scoring_server.app" in sys.modules:  # `mlflow models serve` loads us
            from aces.model.endpoint import Endpoint, install

            defaults = {it.name: it.default for it in _logged_parameters(context)}
            patience = MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.get()
            install(Endpoint(self._model, defaults=defaults, patience=float(patience)))

    def predict(
        self, context: Any, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        try:
            # MLflow has filled in the defaults of the signature.
            request = make_request(model_input, params or {}, model=self._model, defaults={})
            certificates = self._model.at(theta=request.theta).certify(
                request.images, **request.options
            )
        except InputError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None
        return pd.DataFrame([as_row(certificate) for certificate in certificates])


def _logged_parameters(context: Any) -> list[ParamSpec]:
    """The parameters of the signature that the model was logged with."""
    folder = Path(context.artifacts[ARTIFACT])
    for parent in folder.parents:  # artifacts lie below the file that has the signature
        if (parent / "MLmodel").exists():
            return mlflow.models.Model.load(str(parent)).signature.params.params
    raise InputError(f"{folder} is not part of a model that MLflow logged: log it again")


def log_model(
    folder: str | Path,
    *,
    dataset: str,
    n0: int = 100,
    n: int = 1000,
    alpha: float = 0.001,
) -> "ModelInfo":
    """Log what `ACES.save` wrote to `folder` in the active run, and register it as
    `aces-<dataset>`.

    n0, n, alpha: what a request gets that does not say otherwise. The library itself is stored with
    the model, so that it is loaded with the code that made it.
    """
    model = ACES.load(folder)
    if model.shape is None:
        raise InputError(
            f"{folder} does not say which images the networks take: give ACES(shape=(C, H, W)), "
            "save it again"
        )
    return mlflow.pyfunc.log_model(
        name="model",
        python_model=str(CODE),
        artifacts={ARTIFACT: str(folder)},
        code_paths=[str(Path(aces.__file__).parent)],
        signature=signature(model, n0=n0, n=n, alpha=alpha),
        input_example=_grey(model),
        pip_requirements=requirements(),
        registered_model_name=paths.registered_model(dataset),
    )


def signature(model: ACES, *, n0: int, n: int, alpha: float) -> ModelSignature:
    """A tensor in; class, radius and route out; the draws and alpha as parameters of a request."""
    assert model.shape is not None
    return ModelSignature(
        inputs=Schema([TensorSpec(np.dtype("float32"), (-1, *model.shape))]),
        outputs=Schema([ColSpec(kind, name) for name, kind in COLUMNS.items()]),
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
    """The packages that a server needs, in the versions that are installed here."""
    installed = {}
    for name in NEEDED:
        try:
            installed[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed was not needed to make the model
    return [f"{name}=={version}" for name, version in installed.items()]


def _grey(model: ACES) -> np.ndarray:
    """(1, C, H, W) an image of the middle grey."""
    assert model.shape is not None
    return np.full((1, *model.shape), 0.5, dtype=np.float32)
