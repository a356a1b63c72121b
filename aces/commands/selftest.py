"""`aces selftest`: does this machine draw, count and resume as it should?"""

import argparse
import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from aces.console import console, say
from aces.files import write_json

EXAMPLE = """aces selftest
  aces selftest --device cuda --out selftest.json"""
WORDS = {True: "passed", False: "FAILED", None: "-"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1 (default auto)")
    parser.add_argument(
        "--network", default="small", help="the network that is drawn from (default small)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a JSON file, to attach to a bug report"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON")


def run(args: argparse.Namespace) -> int:
    from aces.bench.selftest import machine, selftest  # slow to import

    about = machine(args.device)
    checks = list(selftest(device=args.device, network=args.network))
    content = {"machine": about, "checks": [vars(check) for check in checks]}
    if args.out is not None:
        write_json(args.out, content)
    if args.json:
        print(json.dumps(content, indent=2))
    else:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for check in checks:
            style = "red" if check.passed is False else ""
            table.add_row(
                check.name,
                Text(WORDS[check.passed], style),
                Text(check.seen),
                f"{check.seconds:.1f} s",
            )
        say("  ".join(f"{name} {value}" for name, value in about.items()))
        console.print(table)
    return int(any(check.passed is False for check in checks))
