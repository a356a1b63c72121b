"""The command `aces`: each of its commands is a module in `aces.commands`, imported when it is
used.
"""

import argparse
import difflib
import importlib
import re
import sys
from typing import NoReturn

from aces import __version__
from aces.console import fail
from aces.errors import explain

# name -> what the command does
COMMANDS = {
    "profile": "list the parameter sets, or put one in place",
    "summary": "show the trade-off of the finished run, and where to look next",
    "doctor": "check that this folder can run the pipeline",
    "estimate": "say how long the pipeline will take on this machine",
    "certify": "certify images: class, radius, route",
    "predict": "predict images, without a radius",
    "attack": "attack certified images, inside and outside of their radius",
    "paper": "reproduce every number of the paper from the official release",
    "import": "convert a published checkpoint",
    "compare": "put several runs in one page and one table",
    "rules": "compare the two rules at the same loss of accuracy, on finished runs",
    "bench": "measure the speed of this machine, as ratios",
    "selftest": "prove that this machine draws, counts and resumes as it should",
    "scratch": "list or remove the partial work of long stages",
    "schema": "describe params.yaml to editors, as a JSON schema",
    "completion": "print a script with which the shell completes aces",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that says what may have been meant by a mistyped word."""

    def error(self, message: str) -> NoReturn:
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        known = [*COMMANDS] if "invalid choice" in message else self._options()
        pattern = r"'([^']*)'" if "invalid choice" in message else r"(--?[a-z][a-z0-9-]*)"
        for word in re.findall(pattern, message.partition("(choose")[0]):
            close = difflib.get_close_matches(word, known, n=1)
            if close and word not in known:
                return f"; did you mean {close[0]}?"
        return ""

    def _options(self) -> list[str]:
        """The options of this parser and of the commands below it."""
        options: list[str] = []
        for action in self._actions:
            options += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                options += [it for parser in action.choices.values() for it in parser._options()]
        return options


def build_parser(*commands: str) -> Parser:
    """The parser of `aces`. Only the options of the given commands are known, because only their
    modules are imported.
    """
    parser = Parser(
        prog="aces", description="Robust and accurate classification by randomized smoothing."
    )
    parser.add_argument("--version", action="version", version=f"aces {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=purpose,
            description=purpose[0].upper() + purpose[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in commands:
            module = importlib.import_module(
                f"aces.commands.{name}_" if name == "import" else f"aces.commands.{name}"
            )
            subparser.epilog = f"example:\n  {module.EXAMPLE}"
            module.configure(subparser)
            subparser.set_defaults(run=module.run, whole_parser=_whole_parser)
    return parser


def _whole_parser() -> Parser:
    """The parser that knows the options of all commands, for `aces completion`."""
    return build_parser(*COMMANDS)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    asked = next((word for word in arguments if word in COMMANDS), None)
    args = build_parser(*([asked] if asked else [])).parse_args(arguments)
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
