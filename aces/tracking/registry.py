"""The registered model: its versions, their descriptions, and the one that is called `champion`."""

from typing import Any

from aces import extension

CHAMPION = "champion"  # `models:/aces-cifar10@champion` is the version that was published last


def register(function: str, card: str, options: dict[str, Any]) -> str | None:
    """Log a model by `package.module:function`, describe its registered version, name it champion.

    Runs in the writer, with the pipeline's run active. Returns `models:/name/version`.
    """
    import mlflow

    logged = extension.resolve(function, what="function")(**options)
    version = getattr(logged, "registered_model_version", None)
    name = getattr(logged, "registered_model_name", None) or options.get("name")
    client = mlflow.MlflowClient()
    if version is None or name is None:
        return None
    client.update_registered_model(name, description=card)
    client.update_model_version(name, str(version), description=card)
    client.set_registered_model_alias(name, CHAMPION, str(version))
    return f"models:/{name}/{version}"
