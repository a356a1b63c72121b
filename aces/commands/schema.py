"""`aces schema`: the JSON schema of params.yaml, for editors."""

import argparse
from pathlib import Path

from aces import files, params
from aces.console import say

EXAMPLE = "aces schema --out params.schema.json"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it to a file")


def run(args: argparse.Namespace) -> int:
    if args.out is None:
        say(params.schema().rstrip())
    else:
        files.write_text(args.out, params.schema())
    return 0
