"""`aces compare` and `aces summary`, over runs that a store would give back."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

from aces import params, tracking
from aces.cli import main
from aces.commands.compare import PATIENCE
from aces.reporting import compare
from headless import needs_browser, opened
from simulated import simulated_run


@dataclass
class StoredRun:
    """What `aces.tracking.finished_runs` gives back."""

    id: str
    name: str
    params: dict
    folder: Path

    def artifact(self, path: str) -> Path | None:
        return self.folder / path if (self.folder / path).exists() else None


def stored(folder: Path, id: str, name: str, *, seed: int, **changes) -> StoredRun:
    run = simulated_run(images=40, theta_step=0.05, seed=seed)
    (folder / id / "results").mkdir(parents=True)
    run.curve.to_csv(folder / id / "results/curve.csv", index=False)
    (folder / id / "results/metrics.json").write_text(json.dumps(run.metrics))
    parameters = {key: str(value) for key, value in (params.flatten(run.params) | changes).items()}
    return StoredRun(id, name, parameters, folder / id)


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    """The command sets these where they are not set; so nothing stays set for other tests."""
    for name in PATIENCE:
        monkeypatch.setenv(name, "1")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    made = [
        stored(tmp_path, "aa11", "cifar10-gaussian-0.25", seed=0),
        stored(tmp_path, "bb22", "cifar10-gaussian-0.5", seed=1, sigma=0.5),
        stored(tmp_path, "cc33", "cifar10-gaussian-0.25", seed=0),
    ]  # the first, run again
    monkeypatch.setattr(tracking, "finished_runs", lambda: made)
    return made


def test_all_runs_once(runs, tmp_path, capsys):
    assert main(["compare", "--out", str(tmp_path / "out"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["σ 0.25", "σ 0.5"]
    curves = pd.read_csv(tmp_path / "out/compare.csv")
    stored_curve = pd.read_csv(runs[1].artifact("results/curve.csv"))
    found = curves[curves["run"] == "bb22"].reset_index(drop=True)
    assert (
        found[stored_curve.columns].equals(stored_curve)
        and (found["sigma"].astype(float) == 0.5).all()
    )


def test_rows_are_the_largest_acr_within_the_loss(runs, tmp_path, capsys):
    assert main(["compare", "aa11", "--loss", "10", "--out", str(tmp_path / "out"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    curve = pd.read_csv(runs[0].artifact("results/curve.csv"))
    allowed = [
        acr
        for acr, nac in zip(curve["acr"], curve["nac"], strict=True)
        if nac >= row["core_nac"] - 0.1
    ]
    assert row["acr"] == pytest.approx(max(allowed)) and row["core_nac"] - row["nac"] <= 0.1 + 1e-12
    at_theta = curve.set_index("theta").loc[row["theta"]]
    assert row["certified_accuracy@0.25"] == pytest.approx(at_theta["certified_accuracy@0.25"])


def test_no_loss_allowed_still_gives_a_row(runs):
    run = compare.read_curve(runs[0])
    best = run.at_loss(0)
    assert best["nac"] >= run.metrics["core"]["nac"] - 1e-9 or best["nac"] == run.curve["nac"].max()


def test_runs_by_name_and_by_id(runs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--json"]
    assert main(["compare", "cifar10-gaussian-0.25", *out]) == 0
    labels = [row["run"] for row in json.loads(capsys.readouterr().out)]
    assert labels == ["cifar10-gaussian-0.25 (aa11)", "cifar10-gaussian-0.25 (cc33)"]
    assert main(["compare", "bb", "aa", *out]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["σ 0.5", "σ 0.25"]


def test_bad_requests_are_one_line(runs, tmp_path, capsys, monkeypatch):
    assert main(["compare", "nobody"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no finished run 'nobody': there are cifar10-gaussian-0.25, cifar10-gaussian-0.5" in said
    assert main(["compare", "--loss", "-1"]) == 2
    for run in runs:
        (run.folder / "results/curve.csv").unlink()
    assert main(["compare", "--out", str(tmp_path / "out")]) == 2
    monkeypatch.setattr(tracking, "finished_runs", list)
    assert main(["compare"]) == 2
    assert "`dvc repro` makes one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_networks_alone_are_a_table_of_their_own(runs, tmp_path, capsys):
    assert main(["compare", "--out", str(tmp_path / "out"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    for row, run in zip(rows, runs, strict=False):
        alone = json.loads(run.artifact("results/metrics.json").read_text())["certify"]
        assert all(
            row[f"certify_{name}"] == pytest.approx(alone[name])
            for name in ("nac", "acr", "certified_accuracy@0.25")
        )
    first, second = (
        (tmp_path / "out/compare.md").read_text().split("\nThe certification networks alone:\n\n")
    )
    assert "core NAC" in first and "core NAC" not in second
    shown = [line.strip("| ").split(" | ") for line in second.splitlines()]
    assert shown[0] == ["run", "NAC", "ACR", "acc@0", "acc@0.25", "acc@0.5", "acc@0.75"]
    assert [line[0] for line in shown[2:]] == ["σ 0.25", "σ 0.5"]
    assert float(shown[2][4]) == pytest.approx(
        100 * rows[0]["certify_certified_accuracy@0.25"], abs=0.05 + 1e-9
    )
    page = (tmp_path / "out/index.html").read_text()
    assert (
        "The certification networks alone" in page
        and page.count('<table class="results words">') == 2
    )
    assert "certify_" not in "".join(
        (tmp_path / "out" / name).read_text() for name in ("compare.csv", "compare.md")
    )


def test_radii_of_all_runs_ascend(runs):
    curves = [compare.read_curve(run) for run in runs[:2]]
    fewer = curves[0].curve.drop(columns=["certified_accuracy@0.25", "selection_rate@0.25"])
    table = compare.summary([replace(curves[0], curve=fewer), curves[1]], loss=0.05)
    assert [name for name in table.columns if name.startswith("certified")] == [
        f"certified_accuracy@{r}" for r in (0, 0.25, 0.5, 0.75)
    ]
    assert compare.as_text(compare.alone(table))[0][4] == "–"


def test_a_named_run_without_results_is_named(runs, tmp_path, capsys):
    (runs[1].folder / "results/curve.csv").unlink()
    out = ["--out", str(tmp_path / "out"), "--json"]
    assert main(["compare", "aa11", "bb22", *out]) == 2
    said = capsys.readouterr().err
    assert (
        "with cifar10-gaussian-0.5 (bb22): run `dvc repro` again" in said and said.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()
    assert main(["compare", *out]) == 0
    printed = capsys.readouterr()
    assert (
        len(json.loads(printed.out)) == 1
        and "left out, without results: cifar10-gaussian-0.5 (bb22)" in printed.err
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("curve.csv", ""),
        ("curve.csv", "theta,nac\n0,1\n"),
        ("metrics.json", "{"),
        ("metrics.json", '{"core": 3}'),
    ],
)
def test_damaged_results_are_one_line(runs, tmp_path, capsys, name, text):
    (runs[0].folder / "results" / name).write_text(text)
    assert main(["compare", "aa11", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert (
        "run cifar10-gaussian-0.25 (aa11): its results cannot be read" in said
        and said.count("\n") == 1
    )


def test_folder_that_cannot_be_written_is_one_line(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["compare", "--out", str(tmp_path / "file/out")]) == 2
    said = capsys.readouterr().err
    assert (
        "cannot be written (Not a directory): give another folder" in said and said.count("\n") == 1
    )


@pytest.mark.parametrize("store", ["damaged", "unreachable"])
def test_store_that_cannot_be_read_is_one_line(store, tmp_path, capsys, monkeypatch):
    (tmp_path / "mlflow.db").write_bytes(b"no database at all " * 100)
    uri = {
        "damaged": f"sqlite:///{tmp_path}/mlflow.db",
        "unreachable": "http://me:secret@127.0.0.1:9",
    }[store]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert main(["compare"]) == 2
    said = capsys.readouterr().err
    assert (
        "cannot be read" in said
        and "MLFLOW_TRACKING_URI" in said
        and said.count("\n") == 1
        and "secret" not in said
    )


def test_labels_fall_back_to_names(runs):
    curves = [compare.read_curve(run) for run in runs[:2]]
    far = replace(
        curves[1], params={name: f"{value} changed" for name, value in curves[1].params.items()}
    )
    assert compare.labels([curves[0], far]) == ["cifar10-gaussian-0.25", "cifar10-gaussian-0.5"]


def test_runs_with_other_draws_are_cautioned(runs, tmp_path):
    curves = [compare.read_curve(run) for run in runs[:2]]
    compare.write_comparison(tmp_path / "like", curves, loss=0.05)
    assert "Not like with like" not in (tmp_path / "like/index.html").read_text()
    curves[1].params["sample.n"] = "100000"
    compare.write_comparison(tmp_path / "unlike", curves, loss=0.05)
    assert "differ in the number of draws n" in (tmp_path / "unlike/index.html").read_text()


@needs_browser
def test_page_of_several_runs(runs, tmp_path, chromium):
    assert main(["compare", "--out", str(tmp_path / "out")]) == 0
    with opened(chromium, tmp_path / "out/index.html") as page:
        curve = pd.read_csv(runs[0].artifact("results/curve.csv")).set_index("theta")
        page.eval_on_selector(
            "#theta", "slider => { slider.value = 30; slider.dispatchEvent(new Event('input')); }"
        )
        said = page.get_attribute("#acr-chart svg", "aria-label")
        assert "at θ = 0.30" in said and f"at {100 * curve.loc[0.3, 'nac']:.1f} %" in said
        assert page.locator("#acr-chart polyline").count() == 2
        page.click("#legend button >> nth=1")
        assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "true"
        said = page.get_attribute("#theta", "aria-valuetext")
        assert (
            said.startswith("theta 0.30; σ 0.5: natural accuracy ") and "σ 0.25" not in said
        )  # the run in front
        assert "Arrow keys" in page.inner_text(
            "#" + page.get_attribute("#theta", "aria-describedby")
        )
        assert page.eval_on_selector_all("th", "all => all.every(th => th.scope)")
        assert page.locator("#alone-title").inner_text() == "The certification networks alone"


def test_summary_shows_the_curve_and_where_to_look(tmp_path, monkeypatch, capsys):
    run = simulated_run(images=40)
    (tmp_path / "results").mkdir()
    run.curve.to_csv(tmp_path / "results/curve.csv", index=False)
    (tmp_path / "results/metrics.json").write_text(json.dumps(run.metrics))
    (tmp_path / "params.yaml").write_text(Path("profiles/laptop.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["summary"]) == 0
    shown = capsys.readouterr().out
    row = run.curve.set_index("theta").loc[0.3]
    line = next(line for line in shown.splitlines() if line.strip().startswith("0.30"))
    assert (
        f"{100 * row['nac']:.1f}" in line and f"{100 * row['certified_accuracy@0.25']:.1f}" in line
    )
    assert "certify alone" in shown and "reports/index.html" in shown and "mlflow ui" in shown
    assert main(["summary", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == run.metrics


def test_summary_before_any_run_says_what_to_do(tmp_path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text(Path("profiles/laptop.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["summary"]) == 2
    assert "make repro" in capsys.readouterr().err
