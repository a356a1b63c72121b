"""The code that MLflow stores with the model and runs when it is loaded."""

from mlflow.models import set_model

from aces.model.serving import Served

set_model(Served())
