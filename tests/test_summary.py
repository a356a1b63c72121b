"""`aces summary`: the working point first, then the curve, and whatever must not be missed."""

import json
from pathlib import Path

import pytest

from aces.cli import main
from aces.rule.statistics import floor_digits
from simulated import simulated_run


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the results of a run."""
    run = simulated_run(images=40)
    (tmp_path / "results").mkdir()
    run.curve.to_csv(tmp_path / "results/curve.csv", index=False)
    run.comparison.to_csv(tmp_path / "results/comparison.csv", index=False)
    (tmp_path / "results/summary.json").write_text(json.dumps(run.metrics))
    laptop = Path("profiles/laptop.yaml").read_text()
    (tmp_path / "params.yaml").write_text(laptop.replace("rule: confident", "rule: paper"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return run


def calibrate(theta: float) -> None:
    content = {"theta": theta, "loss": 0.02, "confidence": 0.95, "images": 2000}
    Path("results/calibration.json").write_text(json.dumps(content))


def test_summary_shows_the_curve_and_where_to_look(project, capsys):
    assert main(["summary"]) == 0
    shown = capsys.readouterr().out
    row = project.curve.set_index("theta").loc[0.3]
    line = next(line for line in shown.splitlines() if line.strip().startswith("0.30"))
    assert (
        f"{100 * row['nac']:.1f}" in line and f"{100 * row['certified_accuracy@0.25']:.1f}" in line
    )
    assert "certify alone" in shown and "reports/index.html" in shown and "mlflow ui" in shown
    assert main(["summary", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == project.metrics


def test_summary_leads_with_the_working_point(project, capsys):
    calibrate(0.37)
    assert main(["summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = project.curve.set_index("theta").loc[0.37]
    assert lines[0].endswith("theta 0.37:")
    assert f"{100 * row['nac']:.1f} % correctly" in lines[1]
    assert f"{100 * row['certified_accuracy@0.25']:.1f} % at r = 0.25" in lines[1]
    assert "loses at most 2 points" in lines[3] and "95 % confidence" in lines[3]
    marked = next(line for line in lines if "←" in line)
    assert marked.strip().startswith("0.37")
    assert main(["summary", "--json"]) == 0
    point = json.loads(capsys.readouterr().out)["working_point"]
    assert point["theta"] == 0.37 and point["source"] == "calibration"
    assert point["nac"] == pytest.approx(row["nac"])


@pytest.mark.parametrize("width", ["80", "160"])
def test_the_table_of_many_radii_fits_the_terminal(tmp_path, monkeypatch, capsys, width):
    run = simulated_run(images=40, radii=[round(0.08 * k, 2) for k in range(9)])
    (tmp_path / "results").mkdir()
    run.curve.to_csv(tmp_path / "results/curve.csv", index=False)
    (tmp_path / "results/summary.json").write_text(json.dumps(run.metrics))
    laptop = Path("profiles/laptop.yaml").read_text()
    (tmp_path / "params.yaml").write_text(laptop.replace("rule: confident", "rule: paper"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", width)
    assert main(["summary"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown and "0.08" in shown and "certify alone" in shown


def test_summary_warns_before_any_number(project, capsys):
    concerns = ["The core network is hardly better than chance.", "Only 40 images are evaluated."]
    metrics = project.metrics | {"concerns": concerns}
    Path("results/summary.json").write_text(json.dumps(metrics))
    assert main(["summary"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Do not rely on these numbers yet") < shown.index("ACES answers")
    assert all(concern in shown for concern in concerns)


def test_summary_explains_certified_accuracy_above_natural_accuracy(project, capsys):
    curve = project.curve.assign(nac=project.curve["certified_accuracy@0"])
    curve.to_csv("results/curve.csv", index=False)
    assert main(["summary"]) == 0
    assert "above natural accuracy" not in capsys.readouterr().out
    curve.assign(nac=curve["nac"] - 0.01).to_csv("results/curve.csv", index=False)
    assert main(["summary"]) == 0
    assert "certified accuracy at r = 0 is above natural accuracy" in capsys.readouterr().out


def test_both_rules_are_compared_at_the_same_price(project, capsys):
    """Each at its best theta among those that are as accurate as the working point; the theta of
    the working point itself would put its own rule at a disadvantage.
    """
    calibrate(0.37)
    assert main(["summary"]) == 0
    line = " ".join(capsys.readouterr().out.split())
    mine, comparison = project.curve, project.comparison
    other = comparison[comparison["series"] == "confident"]
    price = mine.set_index("theta").loc[0.37, "nac"] - 1e-12
    best = [floor_digits(each["acr"][each["nac"] >= price].max(), 3) for each in (mine, other)]
    assert f"of the paper rule is {best[0]}, of the confident rule {best[1]}," in line


def test_summary_before_any_run_says_what_to_do(tmp_path, monkeypatch, capsys):
    laptop = Path("profiles/laptop.yaml").read_text()
    (tmp_path / "params.yaml").write_text(laptop.replace("rule: confident", "rule: paper"))
    monkeypatch.chdir(tmp_path)
    assert main(["summary"]) == 2
    assert "make repro" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("curve.csv", "theta,nac,acr\n0,high,0\n"),
        ("summary.json", "{"),
        ("summary.json", '{"core": {"nac": "x"}, "certify": {}, "acr_ceiling": 1}'),
        ("calibration.json", "[1]"),
    ],
)
def test_damaged_results_are_one_line(project, capsys, name, text):
    Path("results", name).write_text(text)
    assert main(["summary"]) == 2
    said = capsys.readouterr().err
    assert "results/ cannot be read" in said and said.count("\n") == 1
