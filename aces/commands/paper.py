"""`aces paper RELEASE_DIR`: every number of the paper, from the official release."""

import argparse
import json
from pathlib import Path

from aces.console import fail, say
from aces.files import make_folder

EXAMPLE = """aces paper ACES --out reports/paper --abstain-as-selected

ACES is a clone of https://github.com/eth-sri/ACES, or a part of it.

exit status:
  0  every published number agrees, or differs only because the published analysis takes an
     abstaining selection for a selection (the errata, each listed; there are none with
     --abstain-as-selected)
  1  a published number is not reproduced, or a file is missing or damaged (each is named)"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", metavar="RELEASE_DIR", help="the folder of the official release")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="reports/paper",
        help="where paper.csv, paper.md, paper.tex, individual.csv, errata.csv and figures/ go "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--abstain-as-selected",
        action="store_true",
        help="take an abstaining selection for a selection of the certification network, as the "
        "published analysis does",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    from aces.paper import analysis, release  # matplotlib and pandas are slow to import

    root, out = Path(args.release), Path(args.out)
    found = release.read_release(root)
    frame, numbers = analysis.analyse(found, abstain_as_selected=args.abstain_as_selected)
    errata = [] if args.abstain_as_selected else analysis.errata(found, numbers)
    failures = [number for number in numbers if not number.agrees and number not in errata]
    agreeing = len(numbers) - len(errata) - len(failures)
    verdict = (
        f"{agreeing:,} of {len(numbers):,} published numbers agree, in {len(found.tables)} tables "
        f"of {len(found.runs)} runs."
    )
    write(out, found, frame, differing=errata + failures, verdict=verdict)
    if args.json:
        print(
            json.dumps(
                {
                    "tables": len(found.tables),
                    "numbers": len(numbers),
                    "agree": agreeing,
                    "errata": _records(errata),
                    "failures": _records(failures),
                    "problems": [str(problem) for problem in found.problems],
                },
                indent=2,
            )
        )
    else:
        tell(verdict, errata, failures, found.problems, out)
    return 1 if failures or found.problems else 0


def write(out: Path, found, frame, *, differing: list, verdict: str) -> None:
    """Write the tables and figures into `out`."""
    from aces.paper import analysis, figures, tables

    make_folder(out / "figures")
    individual = analysis.individuals(found)
    frame.to_csv(out / "paper.csv", index=False)
    individual.to_csv(out / "individual.csv", index=False)
    analysis.listing(differing).to_csv(out / "errata.csv", index=False)
    (out / "paper.md").write_text(tables.to_markdown(frame, individual, notes=[verdict]))
    (out / "paper.tex").write_text(tables.to_latex(frame))
    for name, draw in figures.figures(found):
        figures.write_figure(out / "figures" / f"{name}.png", draw)


def tell(verdict: str, errata: list, failures: list, problems: list, out: Path) -> None:
    say(verdict)
    if errata:
        say(
            f"{len(errata)} differ because the published analysis takes an abstaining selection "
            "for a selection (errata):"
        )
    for number in errata:
        say(f"  {number}")
    for number in failures:
        fail(f"not reproduced: {number}")
    for problem in problems:
        fail(str(problem))
    say(f"Tables and figures are in {out}.")


def _records(numbers: list) -> list[dict]:
    from aces.paper import analysis

    return json.loads(analysis.listing(numbers).to_json(orient="records"))
