"""`mlflow ui` as a person starts it, and its pages in a browser."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

SECONDS = 300  # for the server to start on a busy machine


@contextmanager
def served(folder: Path):
    """The address of `mlflow ui`, started in `folder` as a person would; it is ended in any
    case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hidden = ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "DVC_ROOT")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {
        "DO_NOT_TRACK": "true"
    }
    said = folder / "server.log"
    with said.open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "ui", "--port", str(port), "--workers", "1"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(address, server, said)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # the server and the processes it started
        server.wait()


def wait_for(address: str, server: subprocess.Popen, said: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert server.poll() is None, said.read_text()
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"no answer from {address} after {SECONDS} s: {said.read_text()}")


@contextmanager
def opened_page(chromium, address: str, *, width: int = 1400, height: int = 1000):
    """A page that may ask this server, and nobody else."""
    page = chromium.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(SECONDS * 1000)
    page.route(
        "**/*",
        lambda route: (
            route.continue_() if route.request.url.startswith((address, "blob:")) else route.abort()
        ),
    )
    try:
        yield page
    finally:
        page.close()


def runs_address(page, address: str, experiment: str) -> str:
    """Where the runs of an experiment are listed."""
    page.goto(address)
    link = page.get_by_role("link", name=experiment, exact=True)
    return f"{address}/{link.get_attribute('href').partition('?')[0].lstrip('/')}/runs"


def choose_view(page, name: str) -> None:
    """Choose a saved view of the experiment that is shown."""
    page.get_by_role("button", name="Views").click()
    page.get_by_role("menuitem", name=name).click()


def wait_for_columns(page, names: Iterable[str]) -> None:
    """Until the table of runs has columns of these names; each has a header cell, and one in it."""
    for name in names:
        page.get_by_role("columnheader", name=name, exact=True).first.wait_for()


def show_charts(page) -> None:
    """From the table of runs to their charts: the icon covers the radio button under it."""
    button = page.locator("input[type=radio][value=CHART]")
    button.locator("xpath=..").click(force=True)
