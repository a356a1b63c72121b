"""`aces compare` and `aces summary`, over runs that a store would give back."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

from aces import params, tracking
from aces.cli import main
from aces.reporting import compare
from headless import chromium, needs_browser, opened  # noqa: F401, a fixture
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


@pytest.fixture
def runs(tmp_path, monkeypatch):
    made = [stored(tmp_path, "aa11", "cifar10-gaussian-0.25", seed=0),
            stored(tmp_path, "bb22", "cifar10-gaussian-0.5", seed=1, sigma=0.5),
            stored(tmp_path, "cc33", "cifar10-gaussian-0.25", seed=0)]  # the first, run again
    monkeypatch.setattr(tracking, "finished_runs", lambda: made)
    return made


def test_all_runs_once(runs, tmp_path, capsys):
    assert main(["compare", "--out", str(tmp_path / "out"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["σ 0.25", "σ 0.5"]
    curves = pd.read_csv(tmp_path / "out/compare.csv")
    stored_curve = pd.read_csv(runs[1].artifact("results/curve.csv"))
    found = curves[curves["run"] == "bb22"].reset_index(drop=True)
    assert found[stored_curve.columns].equals(stored_curve) and (found["sigma"].astype(float) == 0.5).all()


def test_rows_are_the_largest_acr_within_the_loss(runs, tmp_path, capsys):
    assert main(["compare", "aa11", "--loss", "10", "--out", str(tmp_path / "out"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    curve = pd.read_csv(runs[0].artifact("results/curve.csv"))
    allowed = [acr for acr, nac in zip(curve["acr"], curve["nac"], strict=True) if nac >= row["core_nac"] - 0.1]
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
    monkeypatch.setattr(tracking, "finished_runs", lambda: [])
    assert main(["compare"]) == 2
    assert "`dvc repro` makes one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_labels_fall_back_to_names(runs):
    curves = [compare.read_curve(run) for run in runs[:2]]
    far = replace(curves[1], params={name: f"{value} changed" for name, value in curves[1].params.items()})
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
        page.eval_on_selector("#theta", "slider => { slider.value = 30; slider.dispatchEvent(new Event('input')); }")
        said = page.get_attribute("#acr-chart svg", "aria-label")
        assert "at θ = 0.30" in said and f"at {100 * curve.loc[0.3, 'nac']:.1f} %" in said
        assert page.locator("#acr-chart polyline").count() == 2
        page.click("#legend button >> nth=1")
        assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "true"


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
    assert f"{100 * row['nac']:.1f}" in line and f"{100 * row['certified_accuracy@0.25']:.1f}" in line
    assert "certify alone" in shown and "reports/index.html" in shown and "mlflow ui" in shown
    assert main(["summary", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == run.metrics


def test_summary_before_any_run_says_what_to_do(tmp_path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text(Path("profiles/laptop.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["summary"]) == 2
    assert "make repro" in capsys.readouterr().err
