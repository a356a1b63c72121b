"""Pages in a real browser, opened from disk."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from aces.reporting.browser import find_browser

needs_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium here: install Debian's package chromium"
)


@contextmanager
def opened(chromium, path: Path, *, width: int = 1280, height: int = 900):
    """The page at `path`, which must neither complain nor ask for anything but itself."""
    page = chromium.new_page(viewport={"width": width, "height": height})
    complaints, requests = [], []
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
