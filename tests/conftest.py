"""Fixtures that several test files share."""

import os
import shutil
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import hypothesis
import pytest

# The width of the terminal that runs the tests is none of their business: each sets its own, and
# the console reads this variable when it is imported.
os.environ.pop("COLUMNS", None)

from aces.reporting.browser import QUIET, find_browser

# How long an example takes says something about the machine, nothing about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# Files that take minutes. They come first, so that two processes end at about the same time.
LONGEST = ("test_pipeline.py", "test_serving.py", "test_rounding_attack.py", "test_training.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """A browser that the tests of one module share.

    The scope is one module and not the session, because playwright keeps an event loop running in
    this thread as long as the browser is open, and other tests start a loop of their own.
    """
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright here: pip install playwright"
    )
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=find_browser(), args=list(QUIET))
        yield launched
        launched.close()


@pytest.fixture
def datasets(tmp_path, monkeypatch) -> Path:
    """An empty place for raw datasets."""
    folder = tmp_path / "datasets"
    monkeypatch.setenv("ACES_DATA", str(folder))
    monkeypatch.delenv("ACES_IMAGENET", raising=False)
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """A fresh MLflow database, made once: its migrations take seconds."""
    from aces.tracking import store

    folder = tmp_path_factory.mktemp("store")
    (folder / ".dvc").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        store.open_store()
    return folder / "mlflow.db"


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """An empty project, where the stages of an experiment `calm-owl` run. It has no store yet."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_EXP_NAME", "calm-owl")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "abc")
    return tmp_path


class WriterThread(threading.Thread):
    """The writer of a stage in this process, where MLflow is imported already."""

    pid = os.getpid()

    def __init__(self, descriptor: int):
        super().__init__(daemon=True)
        self._connection = Connection(os.dup(descriptor))
        self.start()

    def run(self) -> None:
        from aces.tracking import writer

        writer.serve(self._connection, stage_is_gone=lambda: False)

    def wait(self, timeout: float | None = None) -> None:
        self.join(timeout)

    def kill(self) -> None:
        pass


@pytest.fixture
def tracked(repository, empty_store, monkeypatch) -> Path:
    """A project with an empty store. Its stages write to it from this process, which is fast."""
    from aces.tracking import channel

    shutil.copy(empty_store, repository / "mlflow.db")
    monkeypatch.setattr(channel, "_start", WriterThread)
    return repository


@pytest.fixture(scope="session")
def run():
    """A simulated run."""
    from simulated import simulated_run

    return simulated_run()


@pytest.fixture(scope="session")
def report(run, tmp_path_factory) -> Path:
    """The folder of its report."""
    from aces.reporting import write_report

    folder = tmp_path_factory.mktemp("report")
    write_report(folder, run)
    return folder


@pytest.fixture(scope="session")
def reported_run():
    """The run behind `page`."""
    from simulated import simulated_run

    return simulated_run(images=120)


@pytest.fixture(scope="session")
def page_path(reported_run, tmp_path_factory) -> Path:
    from headless import write_page

    return write_page(tmp_path_factory.mktemp("report"), reported_run)


@pytest.fixture(scope="module")
def _open_page(chromium, page_path) -> Iterator:
    """One open page for all tests of a module: to open one takes longer than most tests."""
    from headless import opened

    with opened(chromium, page_path) as page:
        yield page


@pytest.fixture
def page(_open_page):
    """The report in a browser, as it is when it has just been opened."""
    _open_page.mouse.move(0, 0)
    _open_page.evaluate(
        """() => {
          document.activeElement.blur();
          document.getElementById("announcement").textContent = "";
          history.replaceState(null, "", location.pathname);
          dispatchEvent(new HashChangeEvent("hashchange"));
          scrollTo({top: 0, behavior: "instant"});
        }"""
    )
    return _open_page


@pytest.fixture
def started(monkeypatch):
    """The units that workers of the sampler start, from now on."""
    from aces.sampling import count

    units, real = [], count.Counter._count
    monkeypatch.setattr(
        count.Counter,
        "_count",
        lambda self, job, *rest: units.append(job.unit.key) or real(self, job, *rest),
    )
    return units
