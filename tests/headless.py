"""Pages in a real browser, opened from disk."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from aces.reporting import Inputs
from aces.reporting import page as report_page
from aces.reporting.browser import find_browser

needs_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium here: install Debian's package chromium"
)


@contextmanager
def opened(
    chromium,
    path: Path,
    *,
    width: int = 1280,
    height: int = 900,
    address: str = "",
    scheme: str = "light",
):
    """The page at `path`, which must neither complain nor ask for anything but itself.

    address: what follows the name of the file, such as `#theta=0.3`; scheme: light or dark.
    """
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    complaints, requests = [], []
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri() + address)
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()
    assert complaints == []
    assert {url.partition("#")[0] for url in requests if not url.startswith("data:")} == {
        path.as_uri()
    }


def write_page(folder: Path, run: Inputs) -> Path:
    """The page alone, without the figures and tables beside it, which take longer."""
    report_page.write_page(folder / "index.html", run, tables_written=[])
    return folder / "index.html"


def move(page, step: int) -> None:
    """Move the slider."""
    page.eval_on_selector(
        "#theta",
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }",
        step,
    )
