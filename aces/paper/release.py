"""The files of the official release, whatever part of it is there.

    data/<dataset>/core/<network>_core_prediction
    data/<dataset>/<method>/noise_<sigma>/<dataset>_<method>_<sss>_{certification,entropies,selection_<theta>}
    data/<dataset>/<method>/noise_<sigma>_selection_model/<name>/<name>_{certification,outputs,selection_<theta>}
    analysis/tables/<dataset>/<method>/...: the published tables

with <name> = selection_model_<method>_<sss>_binary_<eta>. A missing or damaged file becomes a
`Problem`; the rest is read.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aces.errors import InputError

THETAS = [i / 100 for i in range(101)]
METRICS = ("certified_accuracy", "selection_rate")  # one published table for each
Log = dict[str, np.ndarray]
CORE_NAMES = {"enb7": "efficientnet-b7"}  # as abbreviated in the names of the tables


@dataclass(frozen=True, order=True)
class Key:
    """Which networks a run or a table is about."""

    dataset: str
    method: str
    sigma: float
    selection: str  # entropy, network-0.50, network-0.95

    def __str__(self) -> str:
        return f"{self.dataset} {self.method} sigma {self.sigma:g} {self.selection}"


@dataclass(frozen=True)
class Run:
    """The logs of one certification network and one selection mechanism: N images, T thetas.
    ABSTAIN is -1.
    """

    key: Key
    label: np.ndarray  # (N,)
    prediction: np.ndarray  # (N,) of the certification network, CERTIFY
    radius: np.ndarray  # (N,)
    natural: np.ndarray  # (N,) of the certification network, PREDICT
    thetas: np.ndarray  # (T,)
    selection: np.ndarray  # (N, T) CERTIFY: 1 certification network, 0 core, -1 neither
    selection_radius: np.ndarray  # (N, T)
    natural_selection: np.ndarray  # (N, T) PREDICT
    cores: dict[str, np.ndarray]  # core network -> (N,) predictions
    # (N,) median entropy, or output of the selection network, over noise
    median_score: np.ndarray | None


@dataclass(frozen=True)
class Table:
    """A published table: one row for each theta, NAC, ACR and one metric at several radii, as
    printed.
    """

    path: str
    key: Key
    core: str
    metric: str
    radii: list[float]
    rows: dict[float, list[str]]  # theta -> the cells NAC, ACR, then one for each radius


@dataclass(frozen=True)
class Problem:
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class Release:
    runs: list[Run]
    tables: list[Table]
    problems: list[Problem]


_NO_TABLE = "not rows of theta, NAC, ACR and a cell for each radius"


class _Damaged(ValueError):
    """A file that is there, but cannot be used."""


def read_release(root: str | Path) -> Release:
    """Read all runs and tables below `root`."""
    root = Path(root)
    folders = run_folders(root)
    if not folders:
        raise InputError(
            f"{root} has no data/<dataset>/<method>/noise_<sigma>: give the folder of the "
            "official release (git clone https://github.com/eth-sri/ACES)"
        )
    reader = _Reader(root)
    cores = {dataset: reader.cores(dataset) for dataset in sorted({key.dataset for key in folders})}
    read = (reader.run(key, folder, cores[key.dataset]) for key, folder in folders.items())
    runs = [run for run in read if run is not None]
    tables = reader.tables()
    reader.match(folders, runs, tables)
    return Release(runs=runs, tables=tables, problems=reader.problems)


def run_folders(root: str | Path) -> dict[Key, Path]:
    """The folders of all runs that are there, in order."""
    found = {}
    for folder in Path(root).glob("data/*/*/noise_*"):
        dataset, method = folder.parts[-3:-1]
        if match := re.fullmatch(r"noise_(\d\.\d\d)", folder.name):
            found[Key(dataset, method, float(match[1]), "entropy")] = folder
        for network in folder.glob("selection_model_*"):
            if match := re.fullmatch(r"selection_model_.+_(\d{3})_binary_(\d{3})", network.name):
                found[
                    Key(dataset, method, _number(match[1]), f"network-{_number(match[2]):.2f}")
                ] = network
    return dict(sorted(found.items()))


class _Reader:
    """Reads files below `root`, noting problems on the way."""

    def __init__(self, root: Path):
        self.root = root
        self.problems: list[Problem] = []

    def note(self, path: Path, what: str) -> None:
        self.problems.append(Problem(path.relative_to(self.root).as_posix(), what))

    def attempt(self, read: Callable, path: Path, *args):
        """`read(path, *args)`, or None and a problem."""
        try:
            return read(path, *args)
        except FileNotFoundError:
            self.note(path, "is missing")
        except (ValueError, OSError) as error:
            self.note(path, f"is damaged ({' '.join(str(error).split())})")
        return None

    def cores(self, dataset: str) -> dict[str, Log]:
        folder = self.root / "data" / dataset / "core"
        paths = sorted(folder.glob("*_core_prediction"))
        if not paths:
            self.note(folder, "has no <network>_core_prediction")
        logs = {
            path.name.removesuffix("_core_prediction"): self.attempt(
                _read_log, path, ["label", "predict"]
            )
            for path in paths
        }
        return {network: log for network, log in logs.items() if log is not None}

    def run(self, key: Key, folder: Path, cores: dict[str, Log]) -> Run | None:
        prefix = (
            folder.name
            if key.selection != "entropy"
            else f"{key.dataset}_{key.method}_{_digits(key.sigma)}"
        )
        alone = self.attempt(
            _read_log,
            folder / f"{prefix}_certification",
            ["label", "predict", "radius", "unperturbed predict"],
        )
        if alone is None:
            return None
        scores = folder / f"{prefix}_{'entropies' if key.selection == 'entropy' else 'outputs'}"
        medians = self.attempt(_read_log, scores, ["50 percentile"], alone["idx"])
        logs = {
            theta: self.attempt(
                _read_selection, folder / f"{prefix}_selection_{theta:.2f}", alone["idx"]
            )
            for theta in THETAS
        }
        logs = {theta: log for theta, log in logs.items() if log is not None}
        if not logs:
            return None
        stack = lambda column: np.stack([log[column] for log in logs.values()], axis=1)
        return Run(
            key=key,
            label=alone["label"].astype(int),
            prediction=alone["predict"].astype(int),
            radius=alone["radius"],
            natural=alone["unperturbed predict"].astype(int),
            thetas=np.array(list(logs)),
            selection=stack("predict").astype(int),
            selection_radius=stack("radius"),
            natural_selection=stack("unperturbed predict").astype(int),
            cores=self._matching(key, cores, alone),
            median_score=None if medians is None else medians["50 percentile"],
        )

    def _matching(self, key: Key, cores: dict[str, Log], alone: Log) -> dict[str, np.ndarray]:
        """The cores that speak of the same images as the run."""
        matching = {}
        for network, log in cores.items():
            if np.array_equal(log["idx"], alone["idx"]) and np.array_equal(
                log["label"], alone["label"]
            ):
                matching[network] = log["predict"].astype(int)
            else:
                self.note(
                    self.root / "data" / key.dataset / "core" / f"{network}_core_prediction",
                    f"has other images or labels than {key}",
                )
        return matching

    def tables(self) -> list[Table]:
        paths = sorted(
            path
            for path in (self.root / "analysis" / "tables").rglob("*")
            if path.is_file() and path.name[0] != "."
        )
        found = [
            self.attempt(_read_table, path, path.relative_to(self.root).as_posix())
            for path in paths
        ]
        return [table for table in found if table is not None]

    def match(self, folders: dict[Key, Path], runs: list[Run], tables: list[Table]) -> None:
        """Note runs without a table, and tables without their data."""
        cores = {run.key: run.cores for run in runs}
        for key, folder in folders.items():
            for metric in METRICS:
                if not any(table.key == key and table.metric == metric for table in tables):
                    self.note(
                        folder,
                        f"has no published table of the {metric.replace('_', ' ')} in "
                        "analysis/tables",
                    )
        for table in tables:
            if table.key not in folders:
                self.note(
                    self.root / table.path,
                    f"has no data: data/{table.key.dataset}/{table.key.method} lacks this run",
                )
            elif table.key in cores and table.core not in cores[table.key]:
                self.note(
                    self.root / table.path, f"has no data: the core network {table.core} is missing"
                )


def _read_log(path: Path, columns: list[str], index: np.ndarray | None = None) -> Log:
    """Column -> (N,) numbers of a log, and "idx", the images; `index` is what "idx" must be."""
    head, *lines = path.read_text().splitlines() or [""]
    names = head.split("\t")
    if lacking := [column for column in ["idx", *columns] if column not in names]:
        raise _Damaged(f"no column {lacking[0]!r}")
    if not lines:
        raise _Damaged("no images")
    wanted = ["idx", *columns]
    cells = np.loadtxt(
        lines, delimiter="\t", usecols=[names.index(column) for column in wanted], ndmin=2
    )
    if not np.isfinite(cells).all():
        raise _Damaged("a cell is not a finite number")
    if index is not None and not np.array_equal(cells[:, 0], index):
        raise _Damaged(f"its images are not the {len(index)} of the certification log")
    return dict(zip(wanted, cells.T, strict=True))


def _read_selection(path: Path, index: np.ndarray) -> Log:
    log = _read_log(path, ["predict", "radius", "unperturbed predict"], index)
    if not np.isin([log["predict"], log["unperturbed predict"]], [-1, 0, 1]).all():
        raise _Damaged("a selection is none of 1, 0, -1")
    return log


def _read_table(path: Path, name: str) -> Table:
    key, core, metric = _table_subject(name)
    rows = [
        [cell.strip() for cell in line.removesuffix("\\\\").split("&")[1:]]
        for line in path.read_text().splitlines()
        if line.startswith("&")
    ]
    try:
        header, *body = rows
        radii = [float(cell) for cell in header[3:]]
        numbers = {round(float(theta), 6): cells for theta, *cells in body}
        complete = all(
            len(cells) == 2 + len(radii) and all(float(cell) == float(cell) for cell in cells)
            for cells in numbers.values()
        )
    except ValueError as error:
        raise _Damaged(f"{_NO_TABLE}: {error}") from None
    if header[:3] != ["Threshold", "NAC", "ACR"] or not numbers or not complete:
        raise _Damaged(_NO_TABLE)
    return Table(path=name, key=key, core=core, metric=metric, radii=radii, rows=numbers)


def _table_subject(name: str) -> tuple[Key, str, str]:
    """What a table is about, from its path."""
    dataset, method = name.split("/")[2:4]
    stem = name.rsplit("/", 1)[1]
    if match := re.fullmatch(
        rf"ace_smoothing_table_(selection_)?(\d{{3}})_(.+)_{re.escape(method)}", stem
    ):
        selects, sigma, core, selection = match[1], match[2], match[3], "entropy"
    elif match := re.fullmatch(
        rf"selection_net_{re.escape(method)}_(\d{{3}})_(\d{{3}})_(selection_)?(.+)", stem
    ):
        selects, sigma, core, selection = (
            match[3],
            match[1],
            match[4],
            f"network-{_number(match[2]):.2f}",
        )
    else:
        raise _Damaged("its name does not say what it is about")
    return (
        Key(dataset, method, _number(sigma), selection),
        CORE_NAMES.get(core, core),
        METRICS[bool(selects)],
    )


def _digits(sigma: float) -> str:
    return f"{sigma:.2f}".replace(".", "")


def _number(digits: str) -> float:
    return int(digits) / 100
