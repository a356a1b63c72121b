"""What `aces certify`, `aces predict` and `aces attack` have in common: options, the model, the
files.

Many files are answered in groups. A file that cannot be read is reported and does not stop the
others.
"""

import argparse
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aces.console import console, progress, say, warn
from aces.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from aces.model.certificates import Certificate, Prediction
    from aces.model.composed import ACES
    from aces.params import Params

GROUP = 16  # files that are answered together
BROKEN_STATUS = 1  # some files could not be read

Answer = "Certificate | Prediction"


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="a folder written by ACES.save (default: the networks of the pipeline in this folder)",
    )
    parser.add_argument(
        "--theta",
        type=float,
        metavar="T",
        help="how much doubt is accepted: a larger theta leaves more images to the certification "
        "network (default: the model's; the pipeline's working point)",
    )


def add_draw_options(parser: argparse.ArgumentParser, *, adaptive: str) -> None:
    parser.add_argument(
        "--alpha",
        type=float,
        help="probability with which an answer may be wrong (default: params.yaml's, or 0.001)",
    )
    parser.add_argument("--adaptive", action=argparse.BooleanOptionalAction, help=adaptive)
    parser.add_argument(
        "--seed", type=int, help="repeat the draws of an earlier answer (default: fresh ones)"
    )


def add_file_options(parser: argparse.ArgumentParser) -> None:
    images = parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="image files of any size and mode, or folders of them",
    )
    images.complete = {  # type: ignore[attr-defined]
        "bash": "_shtab_compgen_files",
        "zsh": "_files",
        "tcsh": "f",
    }
    parser.add_argument(
        "--json", action="store_true", help="print JSON, with radii in full precision"
    )


def load_model(args: argparse.Namespace) -> "tuple[ACES, Params | None]":
    """The model asked for, and the parameters of the pipeline if it is the pipeline's."""
    from aces import params, runtime
    from aces.model.composed import ACES

    where = runtime.from_environment()
    if args.model is not None:
        model, settings = ACES.load(args.model), None
        model = model if args.theta is None else model.at(theta=args.theta)
    else:
        model, settings = ACES.from_pipeline(theta=args.theta), params.load()
    return model.running(where), settings


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def find_files(arguments: Sequence[str]) -> list[str]:
    """The files that the arguments name, in order, each once: a folder stands for its images."""
    from aces.data.listing import image_files

    files: dict[str, None] = {}
    for argument in arguments:
        if not os.path.isdir(argument):
            files[argument] = None
            continue
        found = image_files(Path(argument))
        if not found:
            raise InputError(f"{argument} has no image files: name files, or a folder of them")
        files.update(dict.fromkeys(map(str, found)))
    return list(files)


@dataclass(frozen=True)
class Answered:
    """A file with its answer, or with the reason why it has none."""

    file: str
    answer: "Certificate | Prediction | None" = None
    error: str | None = None


def answer_files(
    files: Sequence[str],
    model: "ACES",
    ask: "Callable[..., list]",
    *,
    quiet: bool,
) -> Iterator[Answered]:
    """Each file with its answer, in order.

    ask: is called with images (N, H, W, C), their `index` and `progress`. The draws of a file
    depend on the seed and on its name, so that they are the same whichever files are asked beside
    it.
    """
    from aces.networks.resolution import own_size

    several = len(files) > GROUP
    own = own_size(model.networks["core"]) is not None
    bar = progress("answering", len(files), "images") if several and not quiet else nullcontext()
    with bar as shown:
        for start in range(0, len(files), GROUP):
            group = [_read(file, model) for file in files[start : start + GROUP]]
            good = [(file, image) for file, image, _ in group if image is not None]
            answers = iter(_ask_group(good, ask, as_files=own, progress=not (several or quiet)))
            for file, image, error in group:
                yield Answered(file, None if image is None else next(answers), error)
            if shown is not None:
                shown.advance(len(group))


def _ask_group(
    good: "list[tuple[str, np.ndarray]]",
    ask: "Callable[..., list]",
    *,
    as_files: bool,
    progress: bool,
) -> list:
    """The answers of readable files.

    as_files: the model reads them itself, once more, for a core network with a size of its own.
    """
    import numpy as np

    if not good:
        return []
    files = [file for file, _ in good]
    images = files if as_files else np.stack([image for _, image in good])
    return ask(images, index=list(map(number_of, files)), progress=progress)


def _read(file: str, model: "ACES") -> "tuple[str, np.ndarray | None, str | None]":
    from aces.data.images import read_image

    if model.shape is None:
        raise InputError(
            "the model does not say which images it takes: give ACES(shape=(C, H, W)) and save it "
            "again"
        )
    try:
        return file, read_image(file, shape=model.shape, resize=model.resize), None
    except InputError as error:
        return file, None, str(error)


def number_of(file: str) -> int:
    """A number for a file's name; with the seed it fixes the draws."""
    digest = hashlib.sha256(os.fsencode(os.path.normpath(file))).digest()
    return int.from_bytes(digest[:6], "big")  # 48 bits: two names in a million share one in 500


def report_broken(command: str, answered: Sequence[Answered]) -> int:
    """Say which files could not be read; the exit status of the command."""
    broken = [it for it in answered if it.error is not None]
    for it in broken:
        warn(f"aces {command}: {it.error}")
    if not broken:
        return 0
    if len(broken) == len(answered):
        return 2
    warn(f"aces {command}: {len(broken)} of {len(answered)} files could not be read")
    return BROKEN_STATUS


def record(it: Answered) -> dict[str, Any]:
    """A file and its answer as plain values, for JSON."""
    if it.answer is None:
        return {"image": it.file, "error": it.error}
    values = it.answer.as_dict()
    values["class"] = values.pop("name") or None
    return {"image": it.file} | values


def class_cell(it: Answered) -> str:
    """What a table shows as the class."""
    from rich.markup import escape

    assert it.answer is not None
    if it.answer.abstains:
        return "abstains"
    number = getattr(it.answer, "prediction", it.answer)
    return escape(it.answer.name or str(number))


def new_table(model: "ACES", alpha: float) -> "Table":
    """An empty table with the columns of file and class, after a line that says what it is."""
    from rich.table import Table

    say(f"sigma {model.sigma:g}, theta {model.theta:g}, rule {model.rule}, alpha {alpha:g}")
    table = Table()
    table.add_column("image", no_wrap=True)
    table.add_column("class", no_wrap=True)
    return table


def show_table(table: "Table") -> None:
    """Print a table at the width it needs: a name is never wrapped or cut."""
    from rich.console import Console
    from rich.measure import Measurement

    wide = Console(width=10_000, highlight=False)
    needed = Measurement.get(wide, wide.options, table).maximum
    Console(width=max(console.width, needed), highlight=False).print(table)
