"""`aces rules`: the paper's rule and the confident rule at the same price, on finished runs."""

import argparse
import shlex
from pathlib import Path

from aces.console import say
from aces.errors import InputError

EXAMPLE = "aces rules default=. sigma-1=../sigma-1 --out reports/published"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        default=["this run=."],
        metavar="NAME=FOLDER",
        help="folders with params.yaml and samples/ of a finished run (default: this one)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reports/rules"),
        help="where table and figure go (default: reports/rules)",
    )
    parser.add_argument(
        "--made-by",
        metavar="COMMAND",
        help="the command that the page names (default: this one)",
    )


def run(args: argparse.Namespace) -> int:
    from aces.reporting.rules import compare_rules, markdown, write_rules

    found = []
    for text in args.runs:
        name, _, folder = text.partition("=")
        if not folder or not Path(folder).is_dir():
            raise InputError(f"{text!r}: expected NAME=FOLDER with the folder of a finished run")
        found.append(compare_rules(Path(folder), name=name))
    names = " ".join(shlex.quote(f"{it.name}=FOLDER") for it in found)
    command = args.made_by or f"aces rules {names} --out {args.out}"
    frame = write_rules(args.out, found, command=command)
    say(markdown(frame))
    say(f"Table and figure are in {args.out}.")
    return 0
