"""`results/outcomes.parquet`: one row per image and theta, from `combine` to the report.

In memory each column is a matrix with one row per image and one column per theta. The file holds
all thetas of the first image, then all of the second, so a column of the file is the flattened
matrix. N images, T thetas.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aces.errors import InputError, one_line
from aces.files import atomic
from aces.rule.outcomes import Outcomes, Route

ROUTES = tuple(route.name.lower() for route in Route)
SELECTED = ("certify", "core", "neither")
ROWS = 1_000_000  # rows of one row group: writing and reading need no second copy of everything
_REMEDY = "run `dvc repro -f combine`"
_NAMED = {"route": ROUTES, "selected": SELECTED}  # stored as words, in memory their numbers
_TYPES: dict[str, type] = {
    "index": np.int64,
    "label": np.int32,
    "theta": np.float64,
    "prediction": np.int32,
    "radius": np.float64,
    "route": np.int8,
    "natural_prediction": np.int32,
    "selected": np.int8,
    "selection_radius": np.float64,
    "p_select": np.float64,
    "p_class": np.float64,
}
_NO_GRID = "not one row for each image and theta, images one after another"


@dataclass(frozen=True)
class OutcomeTable:
    """What ACES answers for each image and theta, and the bounds it rests on."""

    index: np.ndarray  # (N,) the image's place in the test set
    label: np.ndarray  # (N,)
    theta: np.ndarray  # (T,)
    prediction: np.ndarray  # (N, T) int, -1: no answer
    radius: np.ndarray  # (N, T)
    route: np.ndarray  # (N, T) Route
    natural_prediction: np.ndarray  # (N, T) int, the answers of PREDICT
    selected: np.ndarray  # (N, T) place in SELECTED: who is provably selected
    selection_radius: np.ndarray  # (N, T) within which that selection holds
    p_select: np.ndarray  # (N, T) lower bound of the probability of the selection
    p_class: np.ndarray  # (N, T) lower bound of the probability of the class

    @property
    def correct(self) -> np.ndarray:
        """(N, T) whether CERTIFY's answer is right."""
        return (self.prediction == self.label[:, None]) & (self.prediction >= 0)

    def signed_selection(self, steps: np.ndarray) -> np.ndarray:
        """(N, S) the radius of the selection at some thetas, below 0 where the core network is
        selected, 0 where neither is.
        """
        sign = np.array([1.0, -1.0, 0.0])  # in the order of SELECTED
        return sign[self.selected[:, steps]] * self.selection_radius[:, steps]


def tabulate(
    outcomes: Outcomes, natural: np.ndarray, *, index: np.ndarray, label: np.ndarray, thetas
) -> OutcomeTable:
    """The rule's outcomes with the images and thetas they belong to.

    natural: (N, T) answers of PREDICT; index, label: (N,); thetas: (T,).
    """
    return OutcomeTable(
        index=np.asarray(index),
        label=np.asarray(label),
        theta=np.asarray(thetas, dtype=float),
        prediction=outcomes.prediction,
        radius=outcomes.radius,
        route=outcomes.route,
        natural_prediction=natural,
        selected=outcomes.selected,
        selection_radius=outcomes.selection_radius,
        p_select=np.asarray(outcomes.p_select),
        p_class=np.asarray(outcomes.p_class),
    )


def write_outcomes(path: str | Path, table: OutcomeTable) -> None:
    """Write the table as parquet, some images at a time: the same table gives the same bytes."""
    images, steps = table.prediction.shape
    stride = max(1, ROWS // max(steps, 1))
    with atomic(path) as temporary:
        writer = None
        for start in range(0, max(images, 1), stride):
            part = _rows(table, slice(start, start + stride))
            writer = writer or pq.ParquetWriter(temporary, part.schema)
            writer.write_table(part)
        assert writer is not None
        writer.close()


def _rows(table: OutcomeTable, images: slice) -> pa.Table:
    """The rows of some images."""
    count, steps = table.prediction[images].shape
    columns = {
        "index": np.repeat(table.index[images].astype(np.int64), steps),
        "label": np.repeat(table.label[images].astype(np.int32), steps),
        "theta": np.tile(table.theta, count),
    }
    for each in fields(table)[3:]:
        values = np.ascontiguousarray(getattr(table, each.name)[images]).ravel()
        if each.name in _NAMED:
            codes = pa.array(values.astype(np.int8))
            columns[each.name] = pa.DictionaryArray.from_arrays(codes, list(_NAMED[each.name]))
        else:
            columns[each.name] = values.astype(_TYPES[each.name], copy=False)
    return pa.table(columns)


def read_outcomes(path: str | Path) -> OutcomeTable:
    """Read and check what `write_outcomes` wrote, one column at a time."""
    try:
        file = pq.ParquetFile(path)
        names = [each.name for each in fields(OutcomeTable)]
        missing = sorted(set(names) - set(file.schema_arrow.names))
        if missing:
            raise ValueError(f"without the columns {', '.join(missing)}")
        index, label, theta = _grid(file)
        shape = (len(index), len(theta))
        columns = {name: _column(file, name).reshape(shape) for name in names[3:]}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: `dvc repro combine` makes it") from None
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be used ({one_line(error)}): {_REMEDY}") from None
    return OutcomeTable(index=index, label=label, theta=theta, **columns)


def _grid(file: pq.ParquetFile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (N,), their labels (N,) and thetas (T,), if the rows are all thetas of the first
    image, then all of the second, and so on.
    """
    index = _column(file, "index")
    steps = int((index == index[0]).sum()) if len(index) else 0
    if not steps or len(index) % steps:
        raise ValueError(_NO_GRID)
    index = index.reshape(-1, steps)
    theta = _column(file, "theta").reshape(-1, steps)
    ascending = bool((np.diff(theta[0]) > 0).all())
    same = bool((theta == theta[:1]).all() and (index == index[:, :1]).all())
    if not ascending or not same or len(np.unique(index[:, 0])) < len(index):
        raise ValueError(_NO_GRID)
    label = _column(file, "label").reshape(-1, steps)[:, 0].copy()
    return index[:, 0].copy(), label, theta[0].copy()


def _column(file: pq.ParquetFile, name: str) -> np.ndarray:
    """A column as numbers, read one row group at a time; words become their places in the list."""
    found = np.empty(file.metadata.num_rows, _TYPES[name])
    start = 0
    for group in range(file.metadata.num_row_groups):
        for chunk in file.read_row_group(group, columns=[name]).column(0).chunks:
            found[start : start + len(chunk)] = _values(chunk, name)
            start += len(chunk)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} has values that are not numbers")
    return found


def _values(chunk: pa.Array, name: str) -> np.ndarray:
    if name in _NAMED:
        chunk = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        words = chunk.dictionary.to_pylist()
        places = np.array([_NAMED[name].index(word) for word in words], np.int8)
        return places[chunk.indices.to_numpy(zero_copy_only=False)]
    values = chunk.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in ("iu" if _TYPES[name] in (np.int32, np.int64) else "iuf"):
        raise ValueError(f"{name} has values that are not numbers")
    return values
