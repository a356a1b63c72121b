"""Tables and figures of the report."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from aces.errors import InputError
from aces.reporting import attacks, browser, remarks, screenshot, tables, write_report
from aces.reporting import figures as figure
from aces.rule import Route
from headless import write_page
from simulated import data_of, simulated_run

pytestmark = pytest.mark.slow


def test_same_inputs_give_the_same_bytes(report, tmp_path):
    write_report(tmp_path, simulated_run())
    made = sorted(path.relative_to(report) for path in report.rglob("*") if path.is_file())
    assert made == sorted(
        path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()
    )
    for path in made:
        assert (report / path).read_bytes() == (tmp_path / path).read_bytes(), path


def test_every_figure_has_its_numbers_and_every_table_its_formats(report):
    names = {path.name for path in (report / "figures").iterdir()}
    figures = ("tradeoff", "acr", "correctness", "selection-radii", "ecdf")
    assert names == {f"{name}.{kind}" for name in figures for kind in ("png", "csv")}
    kept = {path.name for path in (report / "tables").iterdir()}
    assert kept == {
        "tradeoff.csv",
        "tradeoff.md",
        "tradeoff.tex",
        "intervals.csv",
        "outcomes.csv",
        "comparison.csv",
        "comparison.md",
        "tradeoff-confident.csv",
        "tradeoff-confident.md",
    }
    page = (report / "index.html").read_text()
    assert all(
        f'href="{path.relative_to(report)}"' in page
        for path in report.rglob("*.*")
        if path.parent.name == "tables"
    )


def test_table_has_the_curve_s_numbers_in_every_format(run, report):
    table = pd.read_csv(report / "tables/tradeoff.csv")
    assert table["theta"].tolist() == run.params.report.thetas
    expected = run.curve.set_index("theta").loc[0.3]
    row = table.set_index("theta").loc[0.3]
    assert all(row[name] == expected[name] for name in row.index)
    in_markdown = [
        line.strip("| ").split(" | ")
        for line in (report / "tables/tradeoff.md").read_text().splitlines()
    ]
    shown = dict(
        zip(in_markdown[0], next(line for line in in_markdown if line[0] == "0.3"), strict=True)
    )
    assert float(shown["NAC"]) == pytest.approx(100 * expected["nac"], abs=0.05)
    assert float(shown["sel@0.25"]) == pytest.approx(
        100 * expected["selection_rate@0.25"], abs=0.05
    )
    assert 0 <= expected["acr"] - float(shown["ACR"]) < 0.001  # a radius is never rounded up
    latex = (report / "tables/tradeoff.tex").read_text()
    core, abstain = (in_markdown[0].index(name) for name in ("core", "abstain"))
    line = next(line for line in in_markdown if line[0] == "0.3")
    assert float(line[core]) == pytest.approx(100 * expected["core_rate"], abs=0.05)
    as_printed = [cell for k, cell in enumerate(line) if k not in (core, abstain)]
    assert " & ".join(as_printed) + r" \\" in latex  # the paper's table has neither column
    columns = 3 + 2 * len(run.radii)
    assert (
        rf"\begin{{tabular}}{{{'c' * columns}}}" in latex
        and rf"\cmidrule(lr){{4-{3 + len(run.radii)}}}" in latex
    )
    body = latex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len(body) == len(run.params.report.thetas) and all(
        line.count("&") == columns - 1 for line in body
    )


def test_latex_takes_names_with_special_characters(run):
    arch = run.params.certify.replace(arch="cifar_resnet110")
    text = tables.caption(dataclasses.replace(run, params=run.params.replace(certify=arch)))
    assert r"cifar\_resnet110, trained with Gaussian" in text and r"$\sigma=0.25$" in text
    assert (
        tables.escaped("50 % & a\\b{c}~^$#")
        == r"50 \% \& a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\$\#"
    )


def test_radii_are_headed_by_their_own_digits(tmp_path):
    run = simulated_run(images=20, theta_step=0.1, radii=[0.0, 2 / 255, 0.5], baseline=False)
    tables.write_tables(tmp_path, run)
    assert " & 0.00 & 0.00784314 & 0.50 & 0.00 &" in (tmp_path / "tradeoff.tex").read_text()
    assert "| acc@0 | acc@0.00784314 | acc@0.5 |" in (tmp_path / "tradeoff.md").read_text()


def test_comparison_has_the_baseline_s_numbers(run, report):
    table = pd.read_csv(report / "tables/comparison.csv")
    alone = table[table["system"] == "certification network alone"]
    assert (
        alone["sigma"].tolist() == sorted([run.sigma, *run.varying_noise["sigma"]])
        and alone["theta"].isna().all()
    )
    known = run.varying_noise.set_index("sigma")
    for row in alone.to_dict("records"):
        source = run.alone if row["sigma"] == run.sigma else known.loc[row["sigma"]]
        assert all(row[name] == source[name] for name in ("nac", "acr", "certified_accuracy@0.25"))
    at = table[table["system"] == "ACES, the paper's rule"].set_index("theta")
    assert len(at) and all(
        (
            run.curve.set_index("theta").loc[theta, at.columns.drop(["system", "sigma"])]
            == at.loc[theta].drop(["system", "sigma"])
        ).all()
        for theta in at.index
    )
    lines = (report / "tables/comparison.md").read_text().splitlines()
    assert lines[0].startswith("|  | σ | θ | NAC | ACR | acc@0 |") and len(lines) == len(table) + 2
    page = (report / "index.html").read_text()
    assert page.count("<th scope=row>certification network alone</th><td>") == len(alone)


def test_comparison_of_mechanisms_is_at_the_same_price():
    run = simulated_run(images=40, mechanism="network")
    table = tables.comparison(run)
    core = run.metrics["core"]["nac"]
    for system in (
        "ACES, the paper's rule",
        "ACES, the confident rule",
        "ACES, the paper's rule, by entropy",
    ):
        rows = table[table["system"] == system]
        assert (
            1 <= len(rows) <= len(tables.LOSSES)
            and (rows["nac"] >= core - max(tables.LOSSES) - 1e-12).all()
        )


def test_nothing_to_compare_leaves_no_table(report, tmp_path):
    run = simulated_run(images=20, theta_step=0.1, baseline=False)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/comparison.csv").write_text("of an earlier run")
    write_report(tmp_path, run)
    assert not list((tmp_path / "tables").glob("comparison*"))
    assert (
        "comparison" not in (tmp_path / "index.html").read_text()
        and "compared-title" in (report / "index.html").read_text()
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0.01, ["0.1", "0.3", "0.5", "0.7", "0.9"]),
        (0.25, ["0", "0.25", "0.5", "0.75", "1"]),
        (1.0, ["0", "1"]),
    ],
)
def test_legends_name_the_thetas_that_are_drawn(step, expected):
    run = simulated_run(images=5, theta_step=step, baseline=False)
    data = figure.selection_radii(run)
    (panel,) = figure._draw_selection_radii(run, data).axes
    assert [line.get_label() for line in panel.lines] == [f"θ = {theta}" for theta in expected]
    assert all(
        (line.get_ydata() == data[theta]).all()
        for line, theta in zip(panel.lines, expected, strict=True)
    )
    data = figure.ecdf(run)
    (panel,) = figure._draw_ecdf(run, data).axes
    for line in panel.lines[1:]:
        theta = line.get_label().removeprefix("$p_S$ at θ = ")
        assert (line.get_ydata() == 100 * data[f"p_select@{theta}"]).all()


def test_correctness_counts_every_image_once(run):
    frame = figure.correctness(run)
    assert frame["certified"].sum() == run.certifiable.sum()
    assert frame[["certified", "other"]].to_numpy().sum() == len(run.label)
    alone = run.alone[f"certified_accuracy@{run.middle_radius:g}"]
    assert frame["certified"].sum() / len(run.label) == pytest.approx(alone)


def test_selection_radii_are_sorted_and_signed_like_the_routes(run):
    frame = figure.selection_radii(run)
    assert (np.diff(frame.to_numpy(), axis=0) >= 0).all()
    assert (frame["0"] <= 0).all() and (frame["1"] > 0).all()
    routes, signed = run.outcomes.route, run.outcomes.signed_selection(np.arange(len(run.thetas)))
    assert (signed[routes == Route.CERTIFY] > 0).all() and (signed[routes == Route.CORE] < 0).all()


def test_ecdf_is_the_share_of_images_at_most_p(run):
    frame = figure.ecdf(run)
    for p in (0.5, 0.75, 0.99, 1.0):
        row = frame[np.isclose(frame["p"], p)].iloc[0]
        assert row["p_class"] == (run.p_class <= p).mean()
        assert row["p_select@0.4"] == (run.p_select[:, 40] <= p).mean()
    assert frame.iloc[-1, 1:].eq(1).all()


def test_median_score_against_the_definition(run):
    histogram = run.histogram
    for image in range(5):
        draws = np.repeat(np.arange(histogram.shape[1]) / 1000, histogram[image])
        assert run.median_score[image] == np.sort(draws)[(len(draws) - 1) // 2]


def test_outcomes_of_other_counts_are_refused(run):
    other = simulated_run(images=20)
    with pytest.raises(AssertionError, match="do not belong"):
        dataclasses.replace(run, counts=other.counts)


def test_screenshot_without_a_browser_says_no(report, tmp_path, monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    assert screenshot(report / "index.html", tmp_path / "page.png") is False


def test_screenshot_that_hangs_is_given_up(report, tmp_path, monkeypatch):
    sleeper = tmp_path / "browser"
    sleeper.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/child; wait\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(browser, "find_browser", lambda: str(sleeper))
    monkeypatch.setattr(browser, "SECONDS", 1)
    assert screenshot(report / "index.html", tmp_path / "page.png") is False
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_outcomes_of_the_working_point_are_a_table(run, report):
    table, step = pd.read_csv(report / "tables/outcomes.csv"), run.working_point.step
    assert table["index"].tolist() == run.outcomes.index.tolist()
    assert (table["theta"] == run.working_point.theta).all()
    assert (table["prediction"] == run.outcomes.prediction[:, step]).all()
    assert np.allclose(table["radius"], run.outcomes.radius[:, step])
    assert table["route"].tolist() == [Route(r).name.lower() for r in run.outcomes.route[:, step]]


def test_both_rules_have_their_curves_and_tables(run, report):
    figures = pd.read_csv(report / "figures/tradeoff.csv")
    assert set(figures["rule"]) == {"paper", "confident"}
    other = figures[figures["rule"] == "confident"]
    assert other["nac"].tolist() == pytest.approx(run.other_curve["nac"].tolist())
    table = pd.read_csv(report / "tables/tradeoff-confident.csv").set_index("theta")
    expected = run.other_curve.set_index("theta").loc[0.3, "certified_accuracy@0.25"]
    assert table.loc[0.3, "certified_accuracy@0.25"] == pytest.approx(expected)
    (panel, *_) = figure._draw_acr(run, figure.acr(run)).axes
    assert {"ACES, the paper's rule", "ACES, the confident rule"} <= {
        line.get_label() for line in panel.lines
    }
    assert data_of(report / "index.html")["other_rule"]["words"] == "the confident rule"


def test_the_difference_of_the_rules_is_said_with_its_interval(run, tmp_path):
    row = {"loss": 0.02, "paper": 0.1404, "confident": 0.1476}
    price = row | {"difference": -0.0072, "low": -0.0161, "high": 0.0023}
    write_page(tmp_path, dataclasses.replace(run, metrics=run.metrics | {"rules": [price]}))
    cells = re.search(r'id="same-price".*?<tbody>(.*?)</tbody>', page_text(tmp_path), re.DOTALL)[1]
    # Radii are rounded down, the difference to the nearest.
    assert re.findall(r">([^<]+)<", cells) == [
        "2",
        "0.140",
        "0.147",
        "−0.007",
        "−0.016 to +0.002",
    ]


ATTACK = {
    "theta": 0.4,
    "images": 20,
    "certified": 2,
    "breaches": [],
    "scales": [{"scale": 0.98, "class": 0, "selection": 0, "random": 0, "any": 0}],
    "curve": [
        {"radius": 0.0, "certified_accuracy": 0.1, "empirical_accuracy": 0.1},
        {"radius": 0.5, "certified_accuracy": 0.0, "empirical_accuracy": 0.05},
    ],
    "files": {"models/core.safetensors": "aa"},
}


def test_an_attack_is_shown_where_it_is_about_the_same_networks(run, tmp_path):
    path = tmp_path / "attack.json"
    assert attacks.read_attack(path, {}) is None
    path.write_text(json.dumps(ATTACK))
    assert attacks.read_attack(path, {"models/core.safetensors": "bb"}) is None
    found = attacks.read_attack(path, {"models/core.safetensors": "aa", "other": "cc"})
    write_page(tmp_path, dataclasses.replace(run, attack=found))
    text = page_text(tmp_path)
    assert "Inside the certified radius no attack succeeded" in text
    assert data_of(tmp_path / "index.html")["attack"]["empirical_accuracy"] == [0.1, 0.05]
    write_page(tmp_path, dataclasses.replace(run, attack=found | {"breaches": ["image <7>"]}))
    assert "an attack succeeded on image &lt;7&gt;" in page_text(tmp_path)
    write_page(tmp_path, run)
    assert 'id="attack"' not in page_text(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["no json", "[" * 9999, "[]", json.dumps({"files": {"a": "b"}})]
    + [
        json.dumps(ATTACK | {"files": {"a": "b"}} | change)
        for change in ({"theta": 10**400}, {"theta": math.nan}, {"images": math.inf})
    ],
    ids=["text", "deep", "a list", "files alone", "too large", "NaN", "infinite"],
)
def test_a_damaged_attack_is_refused_with_its_remedy(content, tmp_path):
    (tmp_path / "attack.json").write_text(content)
    with pytest.raises(InputError, match="run `aces attack` again, or remove the file"):
        attacks.read_attack(tmp_path / "attack.json", {"a": "b"})


def page_text(folder: Path) -> str:
    return (folder / "index.html").read_text()


def test_without_the_other_rule_nothing_speaks_of_it(tmp_path):
    write_report(tmp_path, simulated_run(images=20, theta_step=0.1, baseline=False))
    assert data_of(tmp_path / "index.html")["other_rule"] is None
    assert not list((tmp_path / "tables").glob("tradeoff-*"))


def test_concerns_stand_first_and_are_escaped(run, tmp_path):
    doubtful = dataclasses.replace(run, metrics=run.metrics | {"concerns": ["<b>one</b> class"]})
    write_report(tmp_path, doubtful)
    page = (tmp_path / "index.html").read_text()
    assert "<li>&lt;b&gt;one&lt;/b&gt; class</li>" in page
    assert page.index('role="alert"') < page.index('id="lede"')


def test_certified_accuracy_above_natural_accuracy_is_explained_where_it_occurs(run):
    curve = run.curve.assign(**{"certified_accuracy@0": run.curve["nac"]})
    assert remarks.above_natural(curve) is None
    curve.loc[3, "certified_accuracy@0"] += 0.01
    assert remarks.above_natural(curve).startswith("At θ = 0.03 certified accuracy at r = 0")
    curve["certified_accuracy@0"] += 0.01
    assert "At 101 thresholds" in remarks.above_natural(curve)


@pytest.mark.parametrize(
    ("thetas", "said"), [("all", "At all thresholds"), ([0.4, 0.5], "At θ = 0.4, 0.5, waiting")]
)
def test_draws_that_stopped_early_are_stated(run, thetas, said):
    assert remarks.stopped_early(run.params) is None
    sample, n = run.params.sample, run.params.sample.n
    adaptive = sample.adaptive.replace(enabled=True, thetas=thetas, tolerance=0.02)
    params = run.params.replace(sample=sample.replace(adaptive=adaptive))
    words = remarks.stopped_early(params, np.array([n, n // 10, n // 10, n]))
    assert f"on 2 of 4 images, after {0.55 * n:,.0f} of {n:,} draws" in words
    assert said in words and "2 % of the largest radius" in words
