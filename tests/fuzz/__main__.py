"""The long version: `python -m tests.fuzz --cases 10000 --seed 7`. Exits with 1 after a failure."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the helpers of the other tests

from .engine import run_target
from .targets import SHARES, TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this one")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="only the case of this number")
    args = parser.parse_args()
    failures = []
    for name in [args.target] if args.target else TARGETS:
        count = args.cases if args.target else round(args.cases * SHARES[name])
        cases = range(count) if args.only is None else range(args.only, args.only + 1)
        report = run_target(TARGETS[name](), seed=args.seed, cases=cases)
        print(report.line(), flush=True)
        failures += report.failures
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
