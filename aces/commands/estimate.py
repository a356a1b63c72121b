"""`aces estimate`: how long the pipeline will take on this machine, before it starts."""

import argparse
import json
from typing import TYPE_CHECKING

from rich.table import Table

from aces import params
from aces.commands import doctor
from aces.console import console, say, warn
from aces.errors import InputError

if TYPE_CHECKING:
    from aces.bench.estimate import Part

EXAMPLE = "aces estimate"
LONG = 2 * 3600  # seconds from which on a way to shorten the run is named


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    doctor.check()
    from aces.bench.estimate import estimate  # slow to import

    settings = params.load()
    try:
        parts = estimate(settings)
    except InputError as error:
        warn(f"no estimate: {error}")
        return 0
    if args.json:
        print(json.dumps([vars(part) for part in parts], indent=2))
    else:
        show(settings, parts)
    return 0


def show(settings: params.Params, parts: "list[Part]") -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    total = sum(part.seconds for part in parts)
    for part in parts:
        table.add_row(part.stage, spoken(part.seconds), part.why)
    say(f"from nothing, the run takes about {spoken(total)} on this machine:")
    console.print(table)
    if total > LONG:
        ways = ["a GPU"] * (not _has_gpu()) + ["sample.precision: int8"] * (
            settings.sample.precision == "float32" and not _has_gpu()
        )
        ways += ["sample.adaptive.enabled: true"] * (not settings.sample.adaptive.enabled)
        ways += [f"fewer images (dataset.stride above {settings.dataset.stride})"]
        say(f"what makes it shorter: {', '.join(ways)}")


def spoken(seconds: float) -> str:
    """37 s, 4 min 40 s, 3.2 hours, 12 days."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.0f} days"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
