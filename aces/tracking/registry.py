"""The registered model: its versions, their descriptions, and the one that is called `champion`."""

from typing import Any

from aces import extension

CHAMPION = "champion"  # `models:/aces-cifar10@champion` is the version that was published last


def register(function: str, card: str, options: dict[str, Any]) -> str | None:
    """Log a model by `package.module:function`, describe its registered version, name it champion.

    Runs in the writer, with the pipeline's run active. Returns `models:/name/version`.
    """
    import mlflow

    before = _versions()
    extension.resolve(function, what="function")(**options)
    new = _versions() - before
    client = mlflow.MlflowClient()
    for name, version in new:
        client.update_registered_model(name, description=card)
        client.update_model_version(name, version, description=card)
        client.set_registered_model_alias(name, CHAMPION, version)
    return next((f"models:/{name}/{version}" for name, version in sorted(new)), None)


def _versions() -> set[tuple[str, str]]:
    """(name, version) of the models that were registered from the active run."""
    import mlflow

    run = mlflow.active_run()
    assert run is not None  # the writer has started one
    found = mlflow.MlflowClient().search_model_versions(f"run_id = '{run.info.run_id}'")
    return {(version.name, str(version.version)) for version in found}
