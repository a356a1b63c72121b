"""The command `aces`: one module a command in `aces.commands`, loaded when it is asked for."""

import argparse
import importlib
import sys

from aces import __version__
from aces.console import fail
from aces.errors import explain

# name -> what it does; each module has `configure(parser)`, `run(args) -> exit status`, and
# `EXAMPLE`.
COMMANDS = {
    "profile": "list the parameter sets, or put one in place",
    "summary": "show the trade-off of the finished run, and where to look next",
    "doctor": "check that this folder can run the pipeline",
    "certify": "certify images: class, radius, route",
    "predict": "predict images, without a radius",
    "paper": "reproduce every number of the paper from the official release",
    "import": "convert a published checkpoint",
    "compare": "put several runs in one page and one table",
    "bench": "measure the speed of this machine, as ratios",
    "scratch": "list or remove the partial work of long stages",
    "schema": "describe params.yaml to editors, as a JSON schema",
}


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="aces", description="Robust and accurate classification by randomized smoothing."
    )
    parser.add_argument("--version", action="version", version=f"aces {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    asked = next((word for word in arguments if word in COMMANDS), None)
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=purpose,
            description=purpose[0].upper() + purpose[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            module = importlib.import_module(
                f"aces.commands.{name}_" if name == "import" else f"aces.commands.{name}"
            )
            subparser.epilog = f"example:\n  {module.EXAMPLE}"
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        return args.run(args) or 0
    except (Exception, KeyboardInterrupt) as error:
        explanation = explain(error)
        if explanation is None:
            raise
        fail(f"aces {args.command}: {explanation.text}")
        return explanation.status


if __name__ == "__main__":
    sys.exit(main())
