"""`aces completion`: a script with which bash, zsh or tcsh complete commands, options and files."""

import argparse

from aces.errors import InputError

EXAMPLE = """aces completion bash > ~/.local/share/bash-completion/completions/aces
  aces completion zsh > ~/.zfunc/_aces"""
SHELLS = ("bash", "zsh", "tcsh")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError:
        raise InputError(
            "completion needs shtab, which is not installed: `pip install shtab`"
        ) from None
    print(shtab.complete(args.whole_parser(), shell=args.shell))
    return 0
