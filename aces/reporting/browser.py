"""A picture of a page, where a browser is installed."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60
WIDTH, HEIGHT = 1280, 2400  # of the picture
# Without these a browser with no network looks for updates, and as root (in a container) it does
# not start.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str | None:
    """The path of an installed Chromium; None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def screenshot(page: str | Path, png: str | Path) -> bool:
    """Picture the top of the HTML file `page` as `png`; False, and nothing else, where that cannot
    be done.
    """
    program = find_browser()
    if program is None:
        return False
    png = Path(png).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            *QUIET,
            f"--user-data-dir={profile}",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={png}",
            Path(page).resolve().as_uri(),
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the browser and the processes it started
            process.wait()
    return process.returncode == 0 and png.exists()
