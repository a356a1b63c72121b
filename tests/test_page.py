"""The report in a real browser, opened from disk."""

import math

import numpy as np
import pytest

from aces.composition import Route
from aces.reporting import screenshot, write_report
from headless import chromium, needs_browser, opened  # noqa: F401, a fixture
from simulated import simulated_run

pytestmark = needs_browser


@pytest.fixture(scope="module")
def run():
    return simulated_run(images=120)


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(folder, run)
    return folder / "index.html"


@pytest.fixture
def page(chromium, path):
    with opened(chromium, path) as page:
        yield page


def move(page, step: int) -> None:
    page.eval_on_selector("#theta", "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step)


def number(text: str) -> float:
    return float(text.replace("%", "").strip())


def live(page, name: str) -> float:
    """The number itself, without the interval below it."""
    return number(page.eval_on_selector(f'.results [data-live="{name}"]', "cell => cell.firstChild.textContent"))


@pytest.mark.parametrize("step", [0, 13, 47, 100])
def test_slider_shows_the_numbers_of_the_curve(page, run, step):
    move(page, step)
    row = run.curve.iloc[step]
    assert live(page, "theta") == pytest.approx(row["theta"])
    assert live(page, "acr") == math.floor(row["acr"] * 1000 + 1e-9) / 1000
    for name in run.curve.columns.drop(["theta", "acr", "abstention", "core_rate"]):
        assert live(page, name) == pytest.approx(100 * row[name], abs=0.05 + 1e-9), name
    routes = run.rule.route[:, step]
    shares = {"core": row["core_rate"], "abstain": row["abstention"], "certify": (routes == Route.CERTIFY).mean(),
              "agree": (routes == Route.AGREE).mean()}
    for route, share in shares.items():
        assert number(page.inner_text(f'[data-share="{route}"]')) == pytest.approx(100 * share, abs=0.05 + 1e-9)
    assert number(page.inner_text('.readout [data-live="nac"]')) == pytest.approx(100 * row["nac"], abs=0.05 + 1e-9)
    assert f"θ = {row['theta']:.2f}" in page.get_attribute("#acr-chart svg", "aria-label")


def test_slider_answers_to_the_keyboard(page, run):
    page.focus("#theta")
    page.keyboard.press("Home")
    assert live(page, "nac") == pytest.approx(100 * run.curve["nac"].iloc[0], abs=0.05 + 1e-9)
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#theta-value") == "0.01"
    assert "natural accuracy" in page.get_attribute("#theta", "aria-valuetext")
    page.keyboard.press("End")
    last = run.curve.iloc[-1]
    assert live(page, "selection_rate@0.25") == pytest.approx(100 * last["selection_rate@0.25"], abs=0.05 + 1e-9)


def test_a_drag_along_a_curve_moves_the_slider(page):
    move(page, 0)
    page.locator("#correctness-chart").scroll_into_view_if_needed()
    box = page.locator("#correctness-chart svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    assert 0.3 < float(page.inner_text("#theta-value")) < 0.7


@pytest.mark.parametrize("step", [20, 60])
def test_wall_shows_every_image_by_route_and_answer(page, run, step):
    move(page, step)
    tiles = page.eval_on_selector_all(".tile", "all => all.map(t => [+t.dataset.image, t.dataset.route, t.dataset.answer])")
    assert sorted(image for image, _, _ in tiles) == list(range(len(run.label)))
    for image, route, answer in tiles:
        prediction = run.rule.prediction[image, step]
        assert route == Route(run.rule.route[image, step]).name.lower()
        assert answer == ("none" if prediction < 0 else "right" if prediction == run.label[image] else "wrong")


@pytest.mark.parametrize("image", [0, 7, 119])
def test_choosing_an_image_shows_its_own_numbers(page, run, image):
    step = 55
    move(page, step)
    page.click(f'.tile[data-image="{image}"]')
    own = lambda name: page.inner_text(f'#detail [data-own="{name}"]')
    classes = run.evaluation.classes
    assert page.inner_text("#detail-title").startswith(classes[run.label[image]])
    assert str(run.evaluation.index[image]) in page.inner_text("#detail-title")
    assert float(own("radius")) == math.floor(run.rule.radius[image, step] * 1000) / 1000
    assert own("core").startswith(classes[run.core[image]]) and own("guess").startswith(classes[run.counts.guess[image]])
    assert own("core").endswith("✓" if run.core[image] == run.label[image] else "✗")
    assert own("selected") == f"{run.selected[image, step]:,} of {run.draws[image]:,}"
    share, bound = (number(part.removeprefix("≥")) for part in own("p_class").replace("\xa0", "").split(", "))
    assert share == pytest.approx(100 * run.p_class[image], abs=0.05 + 1e-9)
    assert 0 <= 100 * run.rule.p_class[image, step] - bound < 0.01 + 1e-4  # never rounded up
    share, bound = (number(part.removeprefix("≥")) for part in own("p_select").replace("\xa0", "").split(", "))
    assert share == pytest.approx(100 * run.p_select[image, step], abs=0.05 + 1e-9)
    assert bound == pytest.approx(100 * run.rule.p_select[image, step], abs=0.01)
    assert float(own("alone")) == math.floor(run.smoothed.radius[image] * 1000) / 1000
    assert f"image {run.evaluation.index[image]}" in page.get_attribute("#radius-chart svg", "aria-label")


def test_wall_answers_to_the_keyboard(page, run):
    page.focus(".tile[tabindex='0']")
    before = page.evaluate("document.activeElement.dataset.image")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    after = int(page.evaluate("document.activeElement.dataset.image"))
    assert str(after) != before and page.get_attribute(f'.tile[data-image="{after}"]', "aria-pressed") == "true"
    assert str(run.evaluation.index[after]) in page.inner_text("#detail-title")
    assert page.eval_on_selector_all(".tile[tabindex='0']", "all => all.length") == 1
    assert run.evaluation.classes[run.label[after]] in page.evaluate("document.activeElement.getAttribute('aria-label')")


def test_wall_is_ordered_by_what_is_asked_for(page, run):
    order = lambda: [int(image) for image in page.eval_on_selector_all(".tile", "all => all.map(t => t.dataset.image)")]
    assert (np.diff(run.median_score[order()]) >= 0).all()
    page.select_option("#order", "class")
    assert (np.diff(run.label[order()]) >= 0).all()
    page.select_option("#order", "index")
    assert order() == list(range(len(run.label)))


def test_every_picture_has_words(page):
    assert page.eval_on_selector_all("svg[role=img]", "all => all.every(svg => svg.getAttribute('aria-label').length > 20)")
    labelled = "all => all.every(tile => tile.getAttribute('aria-label').startsWith('Image '))"
    assert page.eval_on_selector_all(".tile", labelled)
    hidden = "all => all.every(svg => svg.getAttribute('aria-hidden') === 'true')"
    assert page.eval_on_selector_all("svg:not([role=img])", hidden)


def test_phone_shows_the_whole_page_and_the_detail_as_a_sheet(chromium, path):
    with opened(chromium, path, width=375, height=740) as phone:
        assert phone.evaluate("document.documentElement.scrollWidth") <= 375
        assert not phone.is_visible("#detail")
        phone.click('.tile[data-image="3"]')
        assert phone.is_visible("#detail")
        phone.click("#close")
        assert not phone.is_visible("#detail")


def test_500_images_and_101_thetas_stay_below_5_mb(tmp_path):
    write_report(tmp_path, simulated_run(images=500))
    assert (tmp_path / "index.html").stat().st_size < 5_000_000


def test_screenshot_is_a_picture_of_the_page(path, tmp_path):
    from PIL import Image
    assert screenshot(path, tmp_path / "page.png")
    picture = np.asarray(Image.open(tmp_path / "page.png").convert("RGB"))
    assert picture.shape[1] == 1280 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
