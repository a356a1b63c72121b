"""Fixtures that several test files share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aces.reporting.browser import QUIET, find_browser


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
