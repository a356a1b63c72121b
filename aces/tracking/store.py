"""The store: where it is, how a missing one is made, how a moved one finds its files again.

The store is the SQLite database `mlflow.db` beside `.dvc`, also for DVC's temporary workspaces,
with its artifacts in `mlruns`, unless `MLFLOW_TRACKING_URI` names another one. The file lock is
taken for work on local files only, never for a call to a server.
"""

import os
import re
import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from aces import paths
from aces.errors import InputError, missing, one_line
from aces.files import atomic
from aces.tracking import views
from aces.tracking.names import EXPERIMENT

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_SECONDS = 60  # another process of this project may be creating the database
SQLITE = "sqlite:///"
HEADER = b"SQLite format 3\x00"
# What is set for MLflow where the user has not. The first retry comes after 0 s, the second after
# a few: the deadline of a stage allows no more.
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
# Columns that hold the place of artifacts.
LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def tracking_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{paths.root().resolve()}/mlflow.db"


def public(uri: str) -> str:
    """An address without the name and password of its user."""
    return re.sub(r"//[^/@]*@", "//", uri)


def database() -> Path | None:
    """The file of an SQLite store; None for a server or another database."""
    uri = tracking_uri()
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def open_store() -> "MlflowClient":
    """A client of the store, which is created if it is missing. Makes no call to a server."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    file = database()
    if file is not None:
        check(file)
    import mlflow

    if file is not None:
        with _lock():
            if not file.exists():
                _create(file)
            rehome(file, artifacts())
    return mlflow.MlflowClient(tracking_uri=tracking_uri())


@contextmanager
def default_uri() -> Iterator[None]:
    """Within this block MLflow's functions that take no client use our store.

    MLflow sets the environment variable too, which would name this store for good.
    """
    import mlflow

    given = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(tracking_uri())
    try:
        yield
    finally:
        mlflow.set_tracking_uri("")
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        if given is not None:
            os.environ["MLFLOW_TRACKING_URI"] = given


def check(file: Path) -> None:
    """A file that is no database makes MLflow try again for minutes: it is refused here instead."""
    if not file.exists():
        return
    if not file.is_file():
        raise InputError(
            f"{file} is a folder: expected MLflow's database; move it away and a new one is made"
        )
    with file.open("rb") as opened:
        start = opened.read(len(HEADER))
    if start and start != HEADER:
        raise InputError(
            f"{file} is no SQLite database: move it away and a new one is made, or restore it"
        )


def artifacts() -> Path:
    """The folder of a local store's artifacts."""
    return paths.root().resolve() / "mlruns"


def experiment_id(client: "MlflowClient") -> str:
    """The experiment of all our runs, which is created if it is missing."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return found.experiment_id
    # Without a given place MLflow would take the working directory, which may be a temporary one.
    place = artifacts().as_uri() if database() is not None else None
    kind = {"mlflow.experimentKind": "custom_model_development"}  # `mlflow ui` opens at the runs
    tags = kind | views.tags()
    try:
        return client.create_experiment(EXPERIMENT, artifact_location=place, tags=tags)
    except MlflowException:  # another process was faster
        found = client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            raise
        return found.experiment_id


def _lock() -> filelock.FileLock:
    folder = paths.root() / ".dvc" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(folder / "mlflow.lock", timeout=LOCK_SECONDS)


def _create(file: Path) -> None:
    """Create an SQLite store in one step.

    MLflow's own migrations take no lock: two processes that both find no database spoil it for
    good. So one of them makes it under a temporary name and renames it when it is complete.
    """
    import mlflow

    with atomic(file) as unfinished:
        mlflow.MlflowClient(f"{SQLITE}{unfinished}").search_experiments()


def adopt() -> Path | None:
    """Do for a local store what happens when it is opened, without MLflow: `mlflow ui` in a copied
    project shows the artifacts of the original until then. The folder it named before, if another.
    """
    file = database()
    if file is None or not file.exists():
        return None
    check(file)
    with _lock():
        return rehome(file, artifacts())


def rehome(file: Path, folder: Path) -> Path | None:
    """Let a database that was moved or copied with its project name its own folder of artifacts.

    MLflow stores absolute paths. In a copied project they would lead into the original, and new
    runs would write there. So whatever lies in the old folder is renamed to lie in `folder`.
    Returns the old folder if it was another one.
    """
    if not file.stat().st_size:
        return None
    connection = sqlite3.connect(file, timeout=10)
    try:
        with connection:
            old = _old_home(connection)
            if old is None or old == folder:
                return None
            for table, column in LOCATIONS:
                for prefix in (old.as_uri(), str(old)):
                    new = folder.as_uri() if prefix.startswith("file:") else str(folder)
                    _rename(connection, table, column, prefix, new)
            return old
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} cannot be used ({one_line(error)}): {_remedy(error)}") from None
    finally:
        connection.close()


def _old_home(connection: sqlite3.Connection) -> Path | None:
    """The folder of artifacts as the database has it; None before our first run."""
    if not _columns(connection, "experiments"):
        return None
    row = connection.execute(
        "SELECT artifact_location FROM experiments WHERE name = ?", (EXPERIMENT,)
    ).fetchone()
    if row is None or not str(row[0]).startswith("file:"):
        return None  # artifacts that the user keeps elsewhere stay there
    return Path(urllib.parse.unquote(urllib.parse.urlparse(row[0]).path))


def _rename(connection: sqlite3.Connection, table: str, column: str, prefix: str, new: str) -> None:
    """Replace `prefix` where it begins a path in a column. (Names are ours, no user's text.)"""
    if column not in _columns(connection, table):
        return
    connection.execute(
        f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
        f" WHERE {column} = ? OR substr({column}, 1, ?) = ?",
        (new, len(prefix) + 1, prefix, len(prefix) + 1, prefix + "/"),
    )


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _remedy(error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return "another program holds it; end that one"
    return "move it away and a new one is made, or restore it"


def reason(error: BaseException) -> str:
    """Why the store cannot be used: one line in our words, with the remedy.

    MLflow and SQLAlchemy wrap the cause several times, and end with links to their help pages.
    """
    if isinstance(error, InputError):
        return str(error)
    where = public(str(database() or tracking_uri()))
    kinds = {type(cause).__name__ for cause in _causes(error)}
    if isinstance(error, ModuleNotFoundError):
        return missing(error.name, "pipeline")
    if isinstance(error, filelock.Timeout):
        return f"{error.lock_file} is held by another process: end that one"
    if kinds & {"ConnectTimeout", "ReadTimeout", "ReadTimeoutError", "TimeoutError"}:
        return f"{where} does not answer: {_other_server()}"
    if kinds & {"ConnectionError", "MaxRetryError", "NewConnectionError", "ProxyError"}:
        return f"{where} cannot be reached: {_other_server()}"
    for cause in _causes(error):
        if isinstance(cause, sqlite3.Error):
            return f"{where} cannot be used ({one_line(cause)}): {_remedy(cause)}"
    return f"{where}: {public(one_line(error))}"


def silent(seconds: float) -> str:
    """What is said of a store that gives no answer in time."""
    where = public(str(database() or tracking_uri()))
    return f"{where} gave no answer within {seconds:.0f} s: {_other_server()}"


def _other_server() -> str:
    if database() is None:
        return "see that the server runs, or set MLFLOW_TRACKING_URI to another one"
    return "see that no other program holds it"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and everything it was raised from; `orig` is where SQLAlchemy keeps the cause."""
    seen: list[BaseException] = []
    left: list[object] = [error]
    while left:
        cause = left.pop()
        if not isinstance(cause, BaseException) or cause in seen:
            continue
        seen.append(cause)
        yield cause
        left += [cause.__cause__, cause.__context__, getattr(cause, "orig", None)]
        left += [argument for argument in cause.args if isinstance(argument, BaseException)]
