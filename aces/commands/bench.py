"""`aces bench`: what this machine can do, as ratios within one run."""

import argparse
import json
from pathlib import Path

from aces import params, paths
from aces.console import say
from aces.errors import InputError
from aces.files import write_json

EXAMPLE = "aces bench sampler --network cifar_resnet110"
SECTIONS = ("sampler", "scaling", "rule", "training", "stopping", "precision", "results")
OF_A_RUN = 3  # the last sections, which need a finished run


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help=f"of {', '.join(SECTIONS)}; if none is named, all but the last three, which need a run",
    )
    parser.add_argument(
        "--network", default="cifar_resnet20", help="the sampler's network (default cifar_resnet20)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3.0,
        help="of each way of sampling in each repeat (default 3)",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="of which the median counts (default 5)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1 (default auto)")
    parser.add_argument("--workers", type=int, help="of the sampler (default one a core)")
    parser.add_argument(
        "--to-accuracy",
        action="store_true",
        help="training: also train the networks of params.yaml on their dataset (minutes)",
    )
    parser.add_argument(
        "--images", type=int, default=10_000, help="results: so many images (default 10000)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures to a JSON file")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    unknown = [section for section in args.sections if section not in SECTIONS]
    if unknown:
        raise InputError(f"section {unknown[0]!r}: expected some of {', '.join(SECTIONS)}")
    if not args.seconds > 0 or args.repeats < 1:
        raise InputError(
            f"--seconds {args.seconds} --repeats {args.repeats}: expected more than 0 seconds and "
            "at least 1 repeat"
        )
    if args.images < 1:
        raise InputError(f"--images {args.images}: expected at least 1")
    if args.out is not None and not args.out.parent.is_dir():
        raise InputError(
            f"--out={args.out}: the folder {args.out.parent} does not exist; make it first"
        )
    sections = args.sections or SECTIONS[:-OF_A_RUN]
    figures = {section: measure(section, args) for section in sections}
    if args.out is not None:
        write_json(args.out, figures)
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        for section, found in figures.items():
            say(SUMMARIES[section](found))
    return 0


def measure(section: str, args: argparse.Namespace) -> dict:
    """The figures of one section. Only its own module is imported: that takes seconds."""
    match section:
        case "sampler" | "scaling":
            from aces.bench import sampler

            ways = {"sampler": sampler.measure_sampler, "scaling": sampler.measure_scaling}
            return ways[section](
                network=args.network,
                seconds=args.seconds,
                repeats=args.repeats,
                device=args.device,
                workers=args.workers,
            )
        case "rule":
            from aces.bench.rule import measure_rule

            return measure_rule(args.repeats)
        case "training":
            from aces.bench.training import measure_to_accuracy, measure_training

            found = measure_training(args.repeats, device=args.device)
            if args.to_accuracy:
                found["to_accuracy"] = measure_to_accuracy(params.load(), device=args.device)
            return found
        case "stopping":
            from aces.bench.stopping import measure_stopping
            from aces.rule.counts import read_counts

            return measure_stopping(read_counts(paths.COUNTS))
        case "precision":
            from aces.bench.precision import measure_precision

            return measure_precision(params.load())
        case _:
            from aces.bench.results import measure_results

            return measure_results(images=args.images)


def _sampler_summary(found: dict) -> str:
    speeds = "\n".join(
        f"  {name:20} {speed:10,.0f} draws/s" for name, speed in found["draws_per_second"].items()
    )
    int8 = ""
    if "int8_over_float32" in found:
        int8 = (
            f"\n  int8 by {found['int8_backend']}: {found['int8_over_float32']:.2f} times float32, "
            f"{found['int8_over_reference']:.2f} times the reference way, "
            f"{found['int8_over_forward']:.2f} of its best forward pass"
        )
    return (
        f"sampler, {found['network']} by {found['backend']}, workers: {found['workers']}\n"
        f"{speeds}\n  {found['sampler_over_reference']:.2f} times the reference way, "
        f"{found['sampler_over_forward']:.2f} of the best forward pass, "
        f"{found['exact_over_float_noise']:.2f} times its speed with float noise{int8}"
    )


def _scaling_summary(found: dict) -> str:
    lines = "\n".join(
        f"  {axis:6} = {size:>9,} {seconds:9.2f} s"
        for axis, sizes in found["seconds"].items()
        for size, seconds in sizes.items()
    )
    return (
        f"scaling, {found['network']}: draws of each image, and images\n{lines}\n"
        "  the time of a draw in the largest run over that in the smallest: "
        f"{found['draws_ratio']:.2f} for draws, {found['images_ratio']:.2f} for images"
    )


def _rule_summary(found: dict) -> str:
    return (
        f"rule, {found['images']} images, {found['thetas']:,} thetas: {found['seconds']:.2f} s, "
        f"{found['ratio']:,.0f} times a loop over them; the answers "
        f"{'agree' if found['agree'] else 'DIFFER'}"
    )


def _training_summary(found: dict) -> str:
    speeds = "\n".join(
        f"  {precision:9} {speed:8,.0f} images/s, {found['peak_share'][precision]:.0%} of the "
        f"{found['peak_operations_per_second'][precision] / 1e9:,.0f} billion operations a second "
        "of a product of matrices"
        for precision, speed in found["images_per_second"].items()
    )
    trained = "".join(
        f"\n  {role} ({one['arch']}): {one['accuracy']:.1%} in {one['seconds']:.0f} s"
        for role, one in found.get("to_accuracy", {}).items()
    )
    return (
        f"training, {found['network']}\n{speeds}\n"
        f"  in {found['precision']} {found['work']:.0%} of the time in the network (forward "
        f"{found['forward']:.0%}, backward {found['backward']:.0%}, optimizer "
        f"{found['optimizer']:.0%}){trained}"
    )


def _stopping_summary(found: dict) -> str:
    lines = "\n".join(
        f"  {name:24} {plan['draws']:4.0%} of the draws; radius kept "
        + ", ".join(
            f"{plan[rule]['kept']:.1%} ({rule}; {plan[rule]['kept_at_worst']:.1%} at the worst "
            f"theta, {100 * plan[rule]['abstentions']:+.1f} points of abstentions)"
            for rule in ("confident", "paper")
        )
        for name, plan in found["plans"].items()
    )
    return f"early stopping, simulated from the counts of {found['images']} images\n{lines}"


def _precision_summary(found: dict) -> str:
    lines = "\n".join(
        f"  {name:24} {_apart(name, one)}; {_apart(name, found['other_noise'][name])}"
        for name, one in found["differences"].items()
    )
    return (
        f"precision, {found['images']} images, n = {found['n']:,}: {found['same_class']:.1%} of "
        f"the draws have the same class in {found['precision']} and in float32\n"
        "difference between the two with the same noise, mean and largest of all thetas; between "
        f"float32 and itself with other noise\n{lines}"
    )


def _apart(name: str, difference: dict[str, float]) -> str:
    return ", ".join(
        f"{value:.4f}" if name == "acr" else f"{100 * value:.2f} points"
        for value in (difference["mean"], difference["largest"])
    )


def _results_summary(found: dict) -> str:
    lines = "\n".join(
        f"  {stage:8} {one['seconds']:5.1f} s ({one['processor_seconds']:.1f} s of a processor), "
        f"{one['peak_bytes'] / 1e9:.2f} GB of memory at most"
        for stage, one in found["stages"].items()
    )
    return (
        f"results, {found['images']:,} images, {found['thetas']:,} thetas\n{lines}\n"
        f"  the page has {found['page_bytes'] / 1e6:.1f} MB"
    )


SUMMARIES = {
    "sampler": _sampler_summary,
    "scaling": _scaling_summary,
    "rule": _rule_summary,
    "training": _training_summary,
    "stopping": _stopping_summary,
    "precision": _precision_summary,
    "results": _results_summary,
}
