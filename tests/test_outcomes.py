"""results/outcomes.parquet: what is written is what is read, and a damaged file is refused."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from aces.errors import InputError
from aces.reporting import outcomes
from aces.reporting.outcomes import ROUTES, SELECTED, read_outcomes, write_outcomes
from aces.rule import Route
from simulated import simulated_run


@pytest.fixture(scope="module")
def table():
    return simulated_run(images=30, theta_step=0.1).outcomes


@pytest.fixture
def path(table, tmp_path):
    write_outcomes(tmp_path / "outcomes.parquet", table)
    return tmp_path / "outcomes.parquet"


@pytest.mark.parametrize("rows", [11, 100, 1_000_000])
def test_what_is_read_is_what_was_written(table, tmp_path, rows, monkeypatch):
    monkeypatch.setattr(outcomes, "ROWS", rows)  # one image a row group, some, all
    write_outcomes(tmp_path / "outcomes.parquet", table)
    found = read_outcomes(tmp_path / "outcomes.parquet")
    for each in fields(table):
        assert np.array_equal(getattr(found, each.name), getattr(table, each.name)), each.name


def test_others_read_it_as_a_plain_table(table, path):
    frame = pd.read_parquet(path)
    assert len(frame) == table.prediction.size
    row = frame[(frame["index"] == table.index[7]) & (frame["theta"].round(9) == 0.4)].iloc[0]
    assert row["route"] == ROUTES[table.route[7, 4]] == Route(table.route[7, 4]).name.lower()
    assert row["selected"] == SELECTED[table.selected[7, 4]]
    assert row["radius"] == table.radius[7, 4] and row["label"] == table.label[7]


def test_the_sign_says_who_is_selected(table):
    signed = table.signed_selection(np.arange(len(table.theta)))
    assert (signed[table.route == Route.CERTIFY] > 0).all()
    assert (signed[table.route == Route.CORE] < 0).all()
    assert (np.abs(signed) == table.selection_radius).all()


def changed(frame: pd.DataFrame, column: str, row: int, value: float) -> pd.DataFrame:
    frame.loc[row, column] = value
    return frame


def second_again(frame: pd.DataFrame) -> pd.DataFrame:
    """The third image has the place of the second."""
    second, third = frame["index"].unique()[1:3]
    return frame.assign(index=frame["index"].replace(third, second))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda frame: frame.drop(columns="p_select"), "without the columns p_select"),
        (lambda frame: frame.iloc[:-1], "not one row for each image and theta"),
        (lambda frame: frame.sort_values("theta", kind="stable"), "not one row for each image"),
        (lambda frame: frame.assign(radius=np.nan), "radius has values that are not numbers"),
        (lambda frame: frame.assign(prediction=0.5), "prediction has values that are not numbers"),
        (lambda frame: frame.assign(index=0), "not one row for each image and theta"),
        (lambda frame: frame.iloc[:0], "not one row for each image and theta"),
        (lambda frame: frame.assign(radius="<script>"), "radius has values that are not numbers"),
        (lambda frame: frame.assign(route="<script>"), "cannot be used"),
        (lambda frame: frame.assign(theta=-frame["theta"]), "not one row for each image and theta"),
        (lambda frame: changed(frame, "theta", 25, 0.55), "not one row for each image and theta"),
        (lambda frame: changed(frame, "index", 25, 99), "not one row for each image and theta"),
        (second_again, "not one row for each image and theta"),
    ],
)
def test_a_table_that_is_not_ours_is_one_line(path, damage, said):
    damage(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(InputError, match=said) as caught:
        read_outcomes(path)
    assert "dvc repro -f combine" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PAR1 no parquet file at all PAR1"])
def test_a_file_that_is_no_table_is_one_line(tmp_path, content):
    (tmp_path / "outcomes.parquet").write_bytes(content)
    with pytest.raises(InputError, match="cannot be used"):
        read_outcomes(tmp_path / "outcomes.parquet")
    with pytest.raises(InputError, match="does not exist"):
        read_outcomes(tmp_path / "nothing.parquet")
