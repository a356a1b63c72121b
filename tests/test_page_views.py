"""The report's views: addresses, filters, lists, classes and tooltips, in a real browser."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from aces.rule.outcomes import Route
from headless import move, needs_browser, opened, write_page
from simulated import simulated_run

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture
def run(reported_run):
    return reported_run


# ---- a view that can be sent


def address(page) -> str:
    page.wait_for_timeout(200)  # while the slider moves the address waits
    return page.evaluate("decodeURIComponent(location.hash)")


def test_a_link_opens_its_view(chromium, page_path, run):
    image, label = 17, run.label[17]
    link = f"#theta=0.37&image={run.evaluation.index[image]}&route=core,abstain&class={label}"
    with opened(chromium, page_path, address=link + "&order=index") as page:
        assert page.inner_text("#theta-value") == "0.37"
        assert str(run.evaluation.index[image]) in page.inner_text("#detail-title")
        assert page.input_value("#order") == "index"
        seen = page.eval_on_selector_all(
            ".wall .tile:not([hidden])", "all => all.map(t => +t.dataset.image)"
        )
        routes = run.outcomes.route[:, 37]
        expected = ((routes == Route.CORE) | (routes == Route.ABSTAIN)) & (run.label == label)
        assert seen == np.flatnonzero(expected).tolist()
        pressed = page.eval_on_selector_all(
            ".filters [aria-pressed=true]", "all => all.map(chip => chip.dataset.value)"
        )
        assert pressed == ["core", "abstain", str(label)]


def test_the_address_follows_what_is_chosen(page, run):
    assert address(page) == ""
    move(page, 44)
    page.click('.wall .tile[data-image="9"]')
    page.click('.chip[data-value="wrong"]')
    assert address(page) == f"#theta=0.44&image={run.evaluation.index[9]}&answer=wrong"
    page.click("#home")
    page.click("#filter-none")
    assert address(page) == f"#image={run.evaluation.index[9]}"


def test_an_address_that_changes_moves_the_page(page):
    page.evaluate("location.hash = '#theta=0.9&answer=right'")
    page.wait_for_function("document.getElementById('theta-value').textContent === '0.90'")
    assert page.get_attribute('.chip[data-value="right"]', "aria-pressed") == "true"


@pytest.mark.parametrize(
    "link", ["#theta=nonsense&image=-3&route=x&class=999&order=constructor", "#theta=7", "#images"]
)
def test_an_address_that_makes_no_sense_is_no_harm(chromium, page_path, run, link):
    with opened(chromium, page_path, address=link) as page:
        assert page.locator(".wall .tile:not([hidden])").count() == len(run.label)
        shown = float(page.inner_text("#theta-value"))
        assert shown == (1 if "7" in link else pytest.approx(run.working_point.theta))


# ---- filters, lists, classes


def test_filters_count_and_combine(page, run):
    step = 50
    move(page, step)
    table, label = run.outcomes, run.label
    given = table.prediction[:, step]
    wrong = (given >= 0) & (given != label)
    page.click('.chip[data-value="wrong"]')
    count = lambda: page.locator(".wall .tile:not([hidden])").count()
    assert count() == wrong.sum()
    certify = table.route[:, step] == Route.CERTIFY
    chip = page.inner_text('.chip[data-value="certify"]')
    assert chip.endswith(str((wrong & certify).sum()))  # beside the other choice
    page.focus('.chip[data-value="certify"]')
    page.keyboard.press("Enter")
    assert count() == (wrong & certify).sum()
    assert page.inner_text("#wall-count") == f"{count()} of {len(label)} images match"
    move(page, 0)  # the filters follow the threshold
    assert count() == 0
    page.click("#filter-none")
    assert count() == len(label)


def test_lists_name_the_most_telling_images(page, run):
    step = 45
    move(page, step)
    table = run.outcomes
    listed = lambda name: page.eval_on_selector_all(
        f"#list-{name} .tile", "all => all.map(t => +t.dataset.image)"
    )
    radius = table.radius[:, step]
    wrong = (table.route[:, step] == Route.CERTIFY) & ~run.correct[:, step]
    assert page.inner_text("#count-wrong") == str(wrong.sum())
    assert (
        listed("wrong")
        == sorted(np.flatnonzero(wrong), key=lambda i: (-np.float32(radius[i]), i))[:12]
    )
    lost = np.where(run.alone_correct, run.alone_radius - radius, 0)
    first = listed("lost")[0]
    assert lost[first] == pytest.approx(lost.max(), abs=1e-5)
    abstained = table.route[:, step] == Route.ABSTAIN
    assert page.inner_text("#count-abstained") == str(abstained.sum())
    assert set(listed("abstained")) <= set(np.flatnonzero(abstained))
    page.click("#list-lost .tile >> nth=0")
    assert str(run.evaluation.index[first]) in page.inner_text("#detail-title")


def test_class_table_and_matrix_count_every_image(page, run):
    step = 60
    move(page, step)
    table, label = run.outcomes, run.label
    for k in np.unique(label):
        mine = label == k
        cells = page.eval_on_selector_all(
            f'#class-rows [data-class="{k}"] td', "all => all.map(td => +td.textContent)"
        )
        natural = table.natural_prediction[mine, step] == k
        certified = run.correct[mine, step] & (table.radius[mine, step] >= 0.25)
        core = table.route[mine, step] == Route.CORE
        abstain = table.route[mine, step] == Route.ABSTAIN
        shares = [100 * part.mean() for part in (natural, certified, core, abstain)]
        assert cells == pytest.approx([mine.sum(), *shares], abs=0.05 + 1e-9)
        for given in (-1, 0, 5):
            cell = page.inner_text(f'#confusion [data-row="{k}"][data-given="{given}"]')
            count = (table.prediction[mine, step] == given).sum()
            assert cell == (str(count) if count else "·")


def test_matrix_says_who_answered_by_pointer_and_keyboard(page, run):
    move(page, 60)
    cell = '#confusion [data-row="0"][data-given="0"]'
    page.hover(cell)
    said = page.inner_text(".tip")
    mine = (run.label == 0) & (run.outcomes.prediction[:, 60] == 0)
    assert f"{mine.sum()} of {(run.label == 0).sum()} images" in said
    certify = (mine & (run.outcomes.route[:, 60] == Route.CERTIFY)).sum()
    assert f"certification network {certify}" in said
    page.mouse.move(0, 0)
    page.focus(cell)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.row") == "1"
    assert page.is_visible(".tip") and "kind 1" in page.inner_text(".tip")
    page.keyboard.press("Enter")  # the wall shows this class
    assert address(page) == "#theta=0.60&class=1"


# ---- tooltips

CHARTS = (
    *("#panels .chart >> nth=0", "#acr-chart", "#profile-chart", "#correctness-chart"),
    *("#selection-chart", "#ecdf-chart", "#histogram-chart", "#radius-chart"),
)


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_has_tooltips_by_pointer_and_keyboard(page, chart):
    host = page.locator(chart)
    host.scroll_into_view_if_needed()
    host.focus()
    page.keyboard.press("ArrowRight")
    first = page.inner_text(".tip")
    assert len(first) > 10 and page.inner_text("#tip-spoken") != ""
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".tip") != first
    box = page.locator(f"{chart.replace(' >> nth=0', '')} .pointed").first.bounding_box()
    page.keyboard.press("Escape")
    assert not page.is_visible(".tip")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.is_visible(".tip")
    page.mouse.move(1, 1)
    assert not page.is_visible(".tip")


def test_a_tooltip_of_the_curve_has_its_numbers_and_enter_goes_there(page, run):
    page.focus("#acr-chart")
    page.keyboard.press("ArrowRight")  # begins at the threshold of the page
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    row = run.curve.iloc[4]
    said = page.inner_text(".tip")
    assert "the paper's rule, θ = 0.04" in said
    assert f"average certified radius {math.floor(1000 * row['acr'] + 1e-9) / 1000:.3f}" in said
    assert f"natural accuracy {100 * row['nac']:.1f} %" in said
    page.keyboard.press("Enter")
    assert page.inner_text("#theta-value") == "0.04"
    page.keyboard.press("ArrowDown")
    assert "the confident rule" in page.inner_text(".tip")


def test_without_a_calibration_there_is_no_figure_of_one(page):
    assert not page.is_visible("#calibration")


def test_the_confident_rule_shows_its_one_event(chromium, tmp_path):
    run = simulated_run(images=30, theta_step=0.05, rule="confident", baseline=False)
    with opened(chromium, write_page(tmp_path, run)) as page:
        move(page, 12)
        page.click('.wall .tile[data-image="4"]')
        own = lambda name: page.inner_text(f'#detail [data-own="{name}"]')
        selecting = run.joint_histogram[4, :601].sum()
        assert own("selected") == f"{selecting:,} of {run.draws[4]:,}"
        share, bound = own("p_class").replace("\xa0", "").split(", ")
        assert float(share.removesuffix("%")) == pytest.approx(100 * selecting / 2000, abs=0.05)
        known = 100 * run.outcomes.p_class[4, 12]
        assert known - 0.0101 < float(bound.strip("≥%")) <= known
        assert "doubt" in page.inner_text(".facts")
        assert "ACES, the confident rule" in page.inner_text("#legend")


def test_both_rules_are_drawn_in_every_trade_off(page, run):
    panels = page.locator("#panels .panel").count() + 1  # and the average certified radius
    for kind in ("this-rule", "other-rule"):
        assert page.locator(f"polyline.{kind}").count() == panels
    assert "ACES, the confident rule, from the same draws" in page.inner_text("#legend")


def test_the_curves_under_attack_are_drawn_and_have_tooltips(chromium, run, tmp_path):
    curve = {
        "radius": [0.0, 0.4, 0.8],
        "certified_accuracy": [0.4, 0.2, 0.0],
        "empirical_accuracy": [0.4, 0.35, 0.1],
    }
    scales = [{"scale": 2.0, "class": 1, "selection": 3, "random": 0, "any": 3}]
    attack = {"theta": 0.4, "images": 20, "certified": 8, "breaches": []}
    attack |= {"scales": scales, "curve": curve}
    write_page(tmp_path, dataclasses.replace(run, attack=attack))
    with opened(chromium, tmp_path / "index.html") as page:
        assert page.locator("#attack-chart polyline.attacked").count() == 2
        assert "no attack found" in page.inner_text("#attack-chart")
        page.locator("#attack-chart svg").hover()
        assert "right answers" in page.inner_text(".tip")


# ---- what is said, and what can be taken along


def test_the_page_opens_at_the_working_point_and_says_where_it_comes_from(chromium, run, tmp_path):
    calibration = {"theta": 0.3, "loss": 0.02, "confidence": 0.95, "images": 2000} | {
        "thetas": [0.0, 0.1, 0.2, 0.3, 0.4],
        "losses": [0.0, -0.001, 0.004, 0.011, 0.018],
    }
    write_page(tmp_path, dataclasses.replace(run, calibration=calibration))
    with opened(chromium, tmp_path / "index.html") as page:
        assert page.inner_text("#theta-value") == "0.30" and not page.is_visible("#home")
        assert "calibrated on 2,000 other test images" in page.inner_text("#origin")
        page.focus("#calibration-chart")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        said = page.inner_text(".tip")
        assert "θ = 0.4" in said and "1.8 points lost" in said and "not shown to keep" in said
        move(page, 80)
        assert page.inner_text("#origin") == "The working point is θ = 0.30."
        page.click("#home")
        assert page.inner_text("#theta-value") == "0.30"


def test_a_wrong_answer_is_marked_in_the_corner(page, run):
    move(page, 60)
    mark = page.eval_on_selector(
        ".wall .tile[data-answer=wrong]",
        "tile => [getComputedStyle(tile, '::before').width, tile.clientWidth, "
        "getComputedStyle(tile.firstChild).filter]",
    )
    assert float(mark[0].removesuffix("px")) < 0.35 * mark[1] and mark[2] == "none"


def test_outcomes_can_be_downloaded_as_they_are_filtered(page, run):
    move(page, 60)
    page.click('.chip[data-value="certify"]')
    with page.expect_download() as caught:
        page.click("#download")
    assert caught.value.suggested_filename == "outcomes-theta-0.60.csv"
    table = pd.read_csv(caught.value.path())
    chosen = run.outcomes.route[:, 60] == Route.CERTIFY
    assert sorted(table["index"]) == sorted(run.evaluation.index[chosen])
    assert (table["route"] == "certify").all() and (table["theta"] == 0.6).all()
    expected = dict(zip(run.evaluation.index, run.outcomes.radius[:, 60], strict=True))
    assert np.allclose(table["radius"], [expected[index] for index in table["index"]], rtol=1e-6)
