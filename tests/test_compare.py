"""`aces compare`, over runs that a store would give back."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from aces import tracking
from aces.cli import main
from aces.reporting import compare
from aces.reporting import runs as stored_runs
from aces.reporting.runs import read_curve
from aces.tracking import channel
from aces.tracking.store import PATIENCE
from hanging import server
from headless import needs_browser, opened
from stored_runs import stored

pytestmark = pytest.mark.slow


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
    run = read_curve(runs[0])
    best = run.at(0)
    assert best["nac"] >= run.metrics["core"]["nac"] - 1e-9 or best["nac"] == run.curve["nac"].max()


def test_runs_by_name_and_by_id(runs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--json"]
    assert main(["compare", "cifar10-gaussian-0.25", *out]) == 0
    labels = [row["run"] for row in json.loads(capsys.readouterr().out)]
    assert labels == ["cifar10-gaussian-0.25 (aa11)", "cifar10-gaussian-0.25 (cc33)"]
    assert main(["compare", "bb", "aa", *out]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["σ 0.25", "σ 0.5"]


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
        alone = json.loads(run.artifact("results/summary.json").read_text())["certify"]
        assert all(
            row[f"certify_{name}"] == pytest.approx(alone[name])
            for name in ("nac", "acr", "certified_accuracy@0.25")
        )
    first, second = (
        (tmp_path / "out/compare.md").read_text().split("\nThe certification networks alone:\n\n")
    )
    assert first.startswith("## CIFAR-10") and "core NAC" in first and "core NAC" not in second
    shown = [line.strip("| ").split(" | ") for line in second.splitlines()]
    assert shown[0] == ["run", "NAC", "ACR", "r ≈ 0.5 σ", "r ≈ σ", "r ≈ 1.5 σ", "r ≈ 2 σ"]
    assert [line[0] for line in shown[2:]] == ["σ 0.25", "σ 0.5"]
    # One sigma is a radius of 0.25 for the first run and of 0.5 for the second.
    for line, row, radius in zip(shown[2:], rows, ("0.25", "0.5"), strict=True):
        expected = 100 * row[f"certify_certified_accuracy@{radius}"]
        assert float(line[4]) == pytest.approx(expected, abs=0.05 + 1e-9)
    page = (tmp_path / "out/index.html").read_text()
    assert (
        "The certification networks alone" in page
        and page.count('<table class="results words">') == 2
    )
    assert "certify_" not in "".join(
        (tmp_path / "out" / name).read_text() for name in ("compare.csv", "compare.md")
    )


def test_radii_of_all_runs_ascend(runs):
    curves = [read_curve(run) for run in runs[:2]]
    fewer = curves[0].curve.drop(columns=["certified_accuracy@0.25", "selection_rate@0.25"])
    shortened = replace(curves[0], curve=fewer, params=curves[1].params)
    table = compare.summary([shortened, curves[1]], loss=0.05)
    assert [name for name in table.columns if name.startswith("certified")] == [
        f"certified_accuracy@{r}" for r in (0, 0.25, 0.5, 0.75)
    ]
    headings, rows = compare.composed([shortened, curves[1]], loss=0.05)
    assert "–" in [row[headings.index("r = 0.25")] for row in rows]


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
        ("summary.json", "{"),
        ("summary.json", '{"core": 3}'),
        ("summary.json", "[]"),
        ("curve.csv", "theta,nac,acr\n0,<script>alert(1)</script>,0\n"),
        ("curve.csv", "theta,nac,acr\n0,0.5,inf\n"),
        ("curve.csv", "theta,nac,acr\n1,0.5,0\n0,0.5,0\n"),
        ("curve.csv", "theta,nac,acr,certified_accuracy@<img>\n0,0.5,0,0\n"),
        ("comparison.csv", "series,sigma,theta,nac,acr\npaper,0.25,0,<script>,0\n"),
        ("calibration.json", '{"theta": "<script>"}'),
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


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
def test_a_server_that_hangs_is_given_up(drip, tmp_path, capsys, monkeypatch):
    """A byte now and then keeps every timeout of a connection from ending it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(channel, "SECONDS", 2.0)
    with server(drip=drip) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert main(["compare"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "answer" in said and "see that the server runs" in said
    assert not drip or "gave no answer within 2 s" in said
    assert said.count("MLFLOW_TRACKING_URI") == 1 and "secret" not in said


def test_labels_are_short_and_fall_back_to_names(runs):
    first, second = (read_curve(run) for run in runs[:2])
    quiet = {f"certify.train.{name}": "other" for name in ("lr", "epochs", "batch", "momentum")}
    assert stored_runs.labels([first, replace(second, params=second.params | quiet)]) == [
        "σ 0.25",
        "σ 0.5",
    ]  # many parameters differ, but sigma tells the two apart
    alike = replace(second, params=first.params | quiet | {"core.train.lr": "other"})
    assert stored_runs.labels([first, alike]) == ["cifar10-gaussian-0.25", "cifar10-gaussian-0.5"]
    own = replace(second, params=first.params | {"certify.method": "mine.training:gentle"})
    assert stored_runs.labels([first, own]) == ["Gaussian", "gentle"]
    taken = replace(second, params=first.params | {"core.checkpoint": "checkpoints/a/net.pth.tar"})
    assert stored_runs.labels([first, taken]) == ["checkpoint none", "checkpoint net"]


def test_runs_are_grouped_by_dataset_and_sorted_by_sigma(runs):
    base = read_curve(runs[0])
    made = [
        replace(base, id=f"{k}", params=base.params | {"sigma": sigma, "dataset.name": dataset})
        for k, (sigma, dataset) in enumerate(
            [("1.0", "cifar10"), ("0.5", "imagenet"), ("0.25", "cifar10"), ("0.5", "cifar10")]
        )
    ]
    groups = stored_runs.grouped(made)
    assert {name: [run.sigma for run in group] for name, group in groups.items()} == {
        "CIFAR-10": [0.25, 0.5, 1.0],
        "ImageNet": [0.5],
    }
    table = compare.summary(made)
    assert table["dataset"].tolist() == ["CIFAR-10"] * 3 + ["ImageNet"]
    assert table["run"].tolist()[:3] == ["σ 0.25", "σ 0.5", "σ 1.0"]


def test_by_default_a_run_stands_at_its_own_working_point(runs):
    run = read_curve(runs[0])
    calibrated = replace(run, calibration={"theta": 0.35, "loss": 0.02, "confidence": 0.95})
    assert compare.summary([calibrated])["theta"].tolist() == [0.35]
    set_ = replace(calibrated, params=run.params | {"report.theta": "0.6"})
    assert compare.summary([set_])["theta"].tolist() == pytest.approx([0.6])
    known = replace(run, metrics=run.metrics | {"theta": 0.2})
    assert compare.summary([known])["theta"].tolist() == pytest.approx([0.2])


def test_both_rules_stand_side_by_side_at_the_same_accuracy(runs):
    run = read_curve(runs[0])
    assert list(run.others) == ["confident"]
    headings, rows = compare.composed([run], loss=None)
    column = {name: headings.index(name) for name in ("rule", "NAC", "ACR")}
    assert [row[column["rule"]] for row in rows] == ["paper", "confident"]
    assert float(rows[1][column["NAC"]]) >= float(rows[0][column["NAC"]])


def test_runs_with_other_draws_are_cautioned(runs, tmp_path):
    curves = [read_curve(run) for run in runs[:2]]
    compare.write_comparison(tmp_path / "like", curves, loss=0.05)
    assert "Not like with like" not in (tmp_path / "like/index.html").read_text()
    curves[1].params["sample.n"] = "100000"
    compare.write_comparison(tmp_path / "unlike", curves, loss=0.05)
    assert "differ in the number of draws n" in (tmp_path / "unlike/index.html").read_text()


def test_draws_that_stopped_early_are_stated(runs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["compare", *out]) == 0
    assert "stopped early" not in capsys.readouterr().out
    runs[1].params |= {"sample.adaptive.enabled": "True", "sample.adaptive.thetas": "[0.4, 0.5]"}
    assert main(["compare", *out]) == 0
    said = "(settled at θ = 0.4, 0.5)"
    assert said in capsys.readouterr().out and said in (tmp_path / "out/index.html").read_text()


@needs_browser
def test_page_of_several_runs(runs, tmp_path, chromium):
    assert main(["compare", "--out", str(tmp_path / "out")]) == 0
    with opened(chromium, tmp_path / "out/index.html") as page:
        curve = pd.read_csv(runs[0].artifact("results/curve.csv")).set_index("theta")
        assert "at the working points" in page.get_attribute("[data-acr] svg", "aria-label")
        page.eval_on_selector(
            "#theta", "slider => { slider.value = 30; slider.dispatchEvent(new Event('input')); }"
        )
        said = page.get_attribute("[data-acr] svg", "aria-label")
        assert "at θ = 0.30" in said and f"at {100 * curve.loc[0.3, 'nac']:.1f} %" in said
        assert page.locator("[data-acr] polyline.run").count() == 2
        assert page.locator("[data-acr] polyline.other").count() == 2  # the other rule of each
        page.click(".runs button >> nth=1")
        assert page.get_attribute(".runs button >> nth=1", "aria-pressed") == "true"
        said = page.get_attribute("#theta", "aria-valuetext")
        assert (
            said.startswith("theta 0.30; σ 0.5: natural accuracy ") and "σ 0.25" not in said
        )  # the run in front
        page.click("#own")
        assert "at the working points" in page.get_attribute("[data-acr] svg", "aria-label")
        assert "Arrow keys" in page.inner_text(
            "#" + page.get_attribute("#theta", "aria-describedby")
        )
        assert page.eval_on_selector_all("th", "all => all.every(th => th.scope)")
        assert page.locator("#alone-0").inner_text() == "The certification networks alone"


@needs_browser
def test_tooltips_of_the_comparison_name_run_and_radius(runs, tmp_path, chromium):
    assert main(["compare", "--out", str(tmp_path / "out")]) == 0
    with opened(chromium, tmp_path / "out/index.html") as page:
        page.locator("[data-panels] .chart").first.focus()
        page.keyboard.press("ArrowRight")
        first = page.inner_text(".tip")  # half a sigma is a radius that only the second run has
        assert first.startswith("σ 0.5\npaper rule") and "r = 0.25" in first
        assert "natural accuracy" in first
        page.keyboard.press("ArrowDown")
        assert "the confident rule" in page.inner_text(".tip")


def test_terminal_of_any_width_shows_names_and_numbers(runs, tmp_path, capsys, monkeypatch):
    out = ["--out", str(tmp_path / "out")]
    for width in ("80", "160"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(["compare", *out]) == 0
        shown = capsys.readouterr().out
        assert "σ 0.25" in shown and "CIFAR-10" in shown and "…" not in shown
        assert ("a wider terminal also shows" in shown) == (width == "80")


@pytest.fixture
def hostile(runs, tmp_path) -> Path:
    """What is written about a run whose name and parameters are code."""
    evil = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
    runs[0].name = evil
    runs[0].params |= {
        "certify.method": evil,
        "combine.rule": evil,
        "dataset.name": "<img src=x onerror=window.hacked=1>",  # of a path, the end would be shown
        "sample.n": "</script>" + evil,
        "sample.adaptive.enabled": "True",
        "sample.adaptive.thetas": evil,
        evil: evil,
    }
    assert main(["compare", "--out", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


@pytest.mark.parametrize("name", ["index.html", "compare.md"])
def test_no_tag_of_a_run_is_written(hostile, name):
    assert "<img src=x" not in (hostile / name).read_text()


@needs_browser
def test_nothing_of_a_run_is_executed(hostile, chromium):
    with opened(chromium, hostile / "index.html") as page:
        assert page.evaluate("window.hacked") is None
        assert "onerror=window.hacked" in page.inner_text("main")  # shown, as text
