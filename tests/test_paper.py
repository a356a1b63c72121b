"""`aces paper`: the official release where it is at hand (beside the repository), and a made-up one
of its whole layout.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aces import cli
from aces.errors import InputError
from aces.paper import analysis, release
from aces.paper.release import Key
from made_release import WHOLE, write_release

OFFICIAL = Path(__file__).resolve().parents[2] / "shared" / "official-release"
needs_release = pytest.mark.skipif(
    not OFFICIAL.is_dir(), reason=f"the official release is not at {OFFICIAL}"
)
COLUMNS = [
    "dataset",
    "method",
    "sigma",
    "selection",
    "core",
    "theta",
    "metric",
    "radius",
    "value",
    "published",
]


@pytest.fixture(scope="module")
def official() -> release.Release:
    return release.read_release(OFFICIAL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> release.Release:
    """All 23 runs and 46 tables, made up."""
    return release.read_release(write_release(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def part(tmp_path) -> Path:
    """Three runs and their tables, to be damaged."""
    return write_release(
        tmp_path / "part",
        [
            ("cifar10", "macer", "0.50", None),
            ("cifar10", "gaussian", "0.25", None),
            ("cifar10", "gaussian", "0.25", "095"),
        ],
    )


# --- The official release.
# --------------------------------------------------------------------------------------------


@needs_release
def test_every_published_number_is_reproduced(official):
    _, numbers = analysis.analyse(official, abstain_as_selected=True)
    assert [str(number) for number in numbers if not number.agrees] == []
    assert (
        len(numbers) == 121 * len(official.tables) >= 1210
    )  # 11 thetas, NAC, ACR and 9 radii in each table
    assert official.problems == []


@needs_release
def test_algorithm_1_changes_only_numbers_at_radius_0(official):
    """Found in the whole release: selection rates by up to 5.2 points, certified accuracy by 0.2;
    ACR and r > 0 are unaffected.
    """
    _, numbers = analysis.analyse(official, abstain_as_selected=False)
    errata = analysis.errata(official, numbers)
    assert errata == [number for number in numbers if not number.agrees] != []
    assert {number.radius for number in errata} == {0.0}
    change = {
        metric: max(
            abs(number.value - float(number.published))
            for number in errata
            if number.metric == metric
        )
        for metric in {number.metric for number in errata}
    }
    assert set(change) == {"certified_accuracy", "selection_rate"}
    assert change["certified_accuracy"] == pytest.approx(0.2) and change["selection_rate"] <= 5.2


# The paper, Table 1 (tab:IN_main_paper): ImageNet, sigma 0.5, Consistency, EfficientNet-B7: theta,
# NAC, ACR, certified accuracy and certified selection rate at the radii 0, 0.25, ..., 1.5.
TABLE_1 = """
0.0 83.4 0.000 83.4 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0
0.1 80.0 0.530 80.0 33.6 32.6 30.2 28.2 25.6 23.0 45.0 40.2 37.2 34.0 31.8 28.2 25.0
0.2 75.4 0.682 75.0 43.6 41.2 38.2 35.8 33.4 30.0 63.8 58.6 55.6 50.6 47.8 45.2 40.8
0.3 68.8 0.744 68.2 48.4 44.4 41.6 39.2 35.6 32.8 78.0 74.2 70.2 66.2 62.8 59.0 55.0
0.6 57.2 0.799 55.4 51.6 48.8 45.0 42.0 39.0 34.6 99.8 99.4 99.0 98.2 97.4 96.6 94.6
1.0 57.2 0.800 55.4 51.6 48.8 45.2 42.2 39.0 34.6 100.0 100.0 100.0 100.0 100.0 100.0 100.0
"""


@needs_release
def test_main_table_of_the_paper(official):
    run = next(
        run for run in official.runs if run.key == Key("imagenet", "consistency", 0.5, "entropy")
    )
    radii = [0.25 * i for i in range(7)]
    curve = analysis.curve_of(
        run, "efficientnet-b7", radii=radii, abstain_as_selected=True
    ).set_index("theta")
    columns = [
        "nac",
        "acr",
        *(f"{metric}@{r:g}" for metric in ("certified_accuracy", "selection_rate") for r in radii),
    ]
    for line in TABLE_1.split("\n")[1:-1]:
        theta, *cells = line.split()
        found = [
            f"{curve.loc[float(theta), column]:.{3 if column == 'acr' else 1}f}"
            for column in columns
        ]
        assert found == cells, f"theta {theta}"


@needs_release
@pytest.mark.parametrize(
    "dataset, method, sigma, nac, acr",
    [
        ("cifar10", "consistency", 0.5, 65.8, 0.702),
        ("cifar10", "gaussian", 0.25, 77.8, 0.422),
        ("imagenet", "consistency", 0.5, 57.2, 0.800),
    ],
)
def test_individual_networks(official, dataset, method, sigma, nac, acr):
    """NAC and ACR of the networks alone, recomputed from the release by other code."""
    run = next(run for run in official.runs if run.key == Key(dataset, method, sigma, "entropy"))
    found = analysis.individual_of(run, radii=[0.0])
    assert (round(found["nac"], 1), round(found["acr"], 3)) == (nac, acr)


@needs_release
def test_core_accuracies(official):
    """The core networks' accuracy on the official 500 images, counted in their logs."""
    found = {
        core: round(100 * float((predictions == run.label).mean()), 1)
        for run in official.runs
        for core, predictions in run.cores.items()
    }
    assert found == {"lanet": 99.0, "resnet110": 89.4, "efficientnet-b7": 83.4, "resnet50": 76.0}


@needs_release
def test_core_alone_and_certification_network_alone_are_the_ends_of_the_curve(official):
    for run in official.runs:
        for core, predictions in run.cores.items():
            curve = analysis.curve_of(run, core, radii=[0.0], abstain_as_selected=False)
            assert curve["nac"].iloc[0] == pytest.approx(100 * (predictions == run.label).mean())
            assert curve["acr"].iloc[-1] == pytest.approx(
                analysis.individual_of(run, radii=[0.0])["acr"]
            )


# --- The whole layout, made up.
# ---------------------------------------------------------------------------------------


def test_the_whole_layout_is_read_and_agrees(whole):
    """As the whole release: 46 tables, 5,566 numbers; all datasets, methods, sigmas, cores and both
    selection networks.
    """
    frame, numbers = analysis.analyse(whole, abstain_as_selected=True)
    assert whole.problems == [] and len(whole.runs) == len(WHOLE) == 23
    assert len(whole.tables) == 46 and len(numbers) == 5566
    assert [str(number) for number in numbers if not number.agrees] == []
    assert list(frame.columns) == COLUMNS
    assert set(frame["selection"]) == {"entropy", "network-0.50", "network-0.95"}
    assert frame.groupby(["dataset", "core"]).ngroups == 5
    assert (
        frame["published"].notna().sum() == 23 * 11 * 20
    )  # NAC and ACR stand in both tables of a run
    assert set(frame.loc[frame["published"].notna(), "core"]) == {"lanet", "efficientnet-b7"}


def test_without_the_quirk_the_errata_are_at_radius_0(whole):
    _, numbers = analysis.analyse(whole, abstain_as_selected=False)
    errata = analysis.errata(whole, numbers)
    assert errata == [number for number in numbers if not number.agrees] != []
    assert {number.radius for number in errata} == {0.0}


def test_command_writes_tables_and_figures(part, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["paper", str(part), "--out", str(out), "--abstain-as-selected"]) == 0
    assert "726 of 726 published numbers agree" in " ".join(capsys.readouterr().out.split())
    frame = pd.read_csv(out / "paper.csv")
    assert list(frame.columns) == COLUMNS
    assert (
        len(frame) == 3 * 2 * 101 * 20
    )  # runs, cores, thetas; NAC, ACR and two metrics at nine radii
    assert np.all((frame["value"] >= 0) & (frame["value"] <= 100))
    assert frame.loc[frame["metric"].isin(["nac", "acr"]), "radius"].isna().all()
    markdown, latex = (out / "paper.md").read_text(), (out / "paper.tex").read_text()
    assert (
        markdown.count("\n## ") == latex.count(r"\begin{table}") + 1 == 13
    )  # three runs, two cores, two metrics; the networks alone
    assert (
        len(pd.read_csv(out / "individual.csv")) == 3 and len(pd.read_csv(out / "errata.csv")) == 0
    )
    figures = {path.name for path in (out / "figures").glob("*.png")}
    assert {
        "trade_off_cifar10_macer.png",
        "trade_off_cifar10_gaussian.png",
        "selection_mechanism_cifar10_gaussian_0.25.png",
        "selection_radii_cifar10_macer_0.50_entropy.png",
        "certifiable_cifar10_gaussian_0.25_network-0.95.png",
    } <= figures


def test_json_lists_the_errata(part, tmp_path, capsys):
    assert cli.main(["paper", str(part), "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["numbers"] == 726 == found["agree"] + len(found["errata"])
        and found["failures"] == found["problems"] == []
    )
    assert {entry["radius"] for entry in found["errata"]} == {0.0}
    assert len(pd.read_csv(tmp_path / "out" / "errata.csv")) == len(found["errata"]) > 0
    assert "*" in (tmp_path / "out" / "paper.md").read_text().split("## ")[2]


MACER = "data/cifar10/macer/noise_0.50/cifar10_macer_050_"
TABLES = "analysis/tables/cifar10/macer/noise_050/ace_smoothing_table_"
DAMAGE = {  # file, what is left of it (None: it is removed) -> what is said of it
    f"{MACER}selection_0.30": (None, "is missing"),
    f"{MACER}selection_0.40": (lambda text: text[: len(text) // 2], "is damaged"),
    f"{MACER}certification": (lambda text: text.replace("radius", "range"), "no column 'radius'"),
    f"{MACER}entropies": (lambda text: "", "is damaged"),
    f"{MACER}selection_0.50": (lambda text: text.replace("\t1\t", "\t7\t"), "none of 1, 0, -1"),
    f"{MACER}selection_0.60": (lambda text: text.replace("0.", "zero", 1), "is damaged"),
    f"{TABLES}050_lanet_macer": (lambda text: text.replace("&", "+", 5), "is damaged"),
    f"{MACER}selection_0.70": (lambda text: text.splitlines()[0], "no images"),
    f"{MACER}selection_0.80": (lambda text: text.replace("\t0.0\t", "\tnan\t", 1), "not a finite"),
    f"{MACER}selection_0.90": (
        lambda text: "".join(text.splitlines(keepends=True)[:-1]),
        "its images are not the 12 of the certification log",
    ),
    f"{MACER}selection_0.20": (
        lambda text: text.replace("\n20\t", "\n21\t"),
        "its images are not the 12 of the certification log",
    ),
    f"{TABLES}selection_050_lanet_macer": (None, "has no published table of the selection rate"),
    "data/cifar10/core/lanet_core_prediction": (None, "the core network lanet is missing"),
    "data/cifar10/core/resnet110_core_prediction": (
        lambda text: text.replace("20\t", "21\t", 1),
        "has other images",
    ),
}


TABLE = f"{TABLES}050_lanet_macer"
NO_TABLE = {
    "no rows": lambda text: "",
    "no thetas": lambda text: text.splitlines()[0],
    "another head": lambda text: text.replace("NAC", "ACC"),
    "a word": lambda text: text.replace("& 0.25", "& quarter", 1),
    "a cell too few": lambda text: text.replace(" & 0.00 &", " &", 1).replace("& 0.00 &", "&", 1),
    "NaN": lambda text: text[: text.rindex("& ")] + "& nan" + chr(92) * 2 + chr(10),
}


@pytest.mark.parametrize("kind", NO_TABLE)
def test_a_published_table_that_is_none_says_what_was_expected(kind, part):
    damage(part / TABLE, NO_TABLE[kind])
    (problem,) = [each for each in release.read_release(part).problems if each.path == TABLE]
    said = "is damaged (not rows of theta, NAC, ACR and a cell for each radius"
    assert problem.what.startswith(said)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_missing_or_damaged_file_is_named_and_the_rest_goes_on(name, part):
    change, said = DAMAGE[name]
    damage(part / name, change)
    found = release.read_release(part)
    assert any(said in str(problem) for problem in found.problems)
    if change:
        assert any(problem.path == name for problem in found.problems)
    frame, numbers = analysis.analyse(found, abstain_as_selected=True)
    assert sum(number.agrees for number in numbers) >= (0 if "core/lanet" in name else 484), (
        "the other runs are still compared"
    )
    assert "gaussian" in set(frame["method"])


def test_the_exit_status_says_that_a_file_is_missing(part, tmp_path, capsys):
    damage(part / f"{MACER}selection_0.31", None)  # of no published number
    assert (
        cli.main(["paper", str(part), "--out", str(tmp_path / "out"), "--abstain-as-selected"]) == 1
    )
    told = capsys.readouterr()
    assert "726 of 726" in told.out and "selection_0.31: is missing" in " ".join(told.err.split())


def damage(path: Path, change) -> None:
    path.write_text(change(path.read_text())) if change else path.unlink()


def test_a_wrong_number_is_not_an_erratum(part):
    """Only what the quirk explains is forgiven."""
    table = part / f"{TABLES}050_lanet_macer"
    lines = table.read_text().splitlines()
    cells = lines[5].split(" & ")
    cells[4] = "12.3"
    table.write_text("\n".join([*lines[:5], " & ".join(cells), *lines[6:]]))
    found = release.read_release(part)
    _, numbers = analysis.analyse(found, abstain_as_selected=False)
    errata = analysis.errata(found, numbers)
    unexplained = [number for number in numbers if not number.agrees and number not in errata]
    assert [number.published for number in unexplained] == ["12.3"]


def test_tables_without_data_are_named(part):
    shutil.rmtree(part / "data/cifar10/macer")
    found = release.read_release(part)
    assert (
        sum("has no data" in problem.what for problem in found.problems) == 2
        and len(found.runs) == 2
    )


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_that_is_no_release_is_refused(folder, tmp_path, capsys):
    assert cli.main(["paper", str(tmp_path / folder), "--out", str(tmp_path / "out")]) == 2
    assert "git clone" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(InputError):
        release.read_release(tmp_path / folder)
