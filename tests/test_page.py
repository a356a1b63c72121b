"""The report in a real browser, opened from disk."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from aces.reporting import figures, screenshot
from aces.rule import Route
from headless import move, needs_browser, opened, write_page
from simulated import simulated_run

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture
def run(reported_run):
    return reported_run


def number(text: str) -> float:
    return float(text.replace("%", "").strip())


def live(page, name: str) -> float:
    """The number itself, without the interval below it."""
    return number(
        page.eval_on_selector(
            f'.results [data-live="{name}"]', "cell => cell.firstChild.textContent"
        )
    )


@pytest.mark.parametrize("step", [0, 13, 47, 100])
def test_slider_shows_the_numbers_of_the_curve(page, run, step):
    move(page, step)
    row = run.curve.iloc[step]
    assert live(page, "theta") == pytest.approx(row["theta"])
    assert live(page, "acr") == math.floor(row["acr"] * 1000 + 1e-9) / 1000
    for name in run.curve.columns.drop(["theta", "acr"]):
        assert live(page, name) == pytest.approx(100 * row[name], abs=0.05 + 1e-9), name
    routes = run.outcomes.route[:, step]
    shares = {
        "core": row["core_rate"],
        "abstain": row["abstention"],
        "certify": (routes == Route.CERTIFY).mean(),
        "agree": (routes == Route.AGREE).mean(),
    }
    for route, share in shares.items():
        assert number(page.inner_text(f'[data-share="{route}"]')) == pytest.approx(
            100 * share, abs=0.05 + 1e-9
        )
    assert number(page.inner_text('.readout [data-live="nac"]')) == pytest.approx(
        100 * row["nac"], abs=0.05 + 1e-9
    )
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
    assert live(page, "selection_rate@0.25") == pytest.approx(
        100 * last["selection_rate@0.25"], abs=0.05 + 1e-9
    )


def test_a_drag_along_a_curve_moves_the_slider(page):
    move(page, 0)
    page.locator("#correctness-chart").scroll_into_view_if_needed()
    box = page.locator("#correctness-chart svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    assert 0.3 < float(page.inner_text("#theta-value")) < 0.7


@pytest.mark.parametrize("step", [20, 60])
def test_wall_shows_every_image_by_route_and_answer(page, run, step):
    move(page, step)
    tiles = page.eval_on_selector_all(
        ".wall .tile", "all => all.map(t => [+t.dataset.image, t.dataset.route, t.dataset.answer])"
    )
    assert sorted(image for image, _, _ in tiles) == list(range(len(run.label)))
    for image, route, answer in tiles:
        prediction = run.outcomes.prediction[image, step]
        assert route == Route(run.outcomes.route[image, step]).name.lower()
        assert answer == (
            "none" if prediction < 0 else "right" if prediction == run.label[image] else "wrong"
        )


@pytest.mark.parametrize("image", [0, 7, 119])
def test_choosing_an_image_shows_its_own_numbers(page, run, image):
    step = 55
    move(page, step)
    page.click(f'.wall .tile[data-image="{image}"]')
    own = lambda name: page.inner_text(f'#detail [data-own="{name}"]')
    classes = run.evaluation.classes
    assert page.inner_text("#detail-title").startswith(classes[run.label[image]])
    assert str(run.evaluation.index[image]) in page.inner_text("#detail-title")
    assert float(own("radius")) == math.floor(run.outcomes.radius[image, step] * 1000) / 1000
    assert own("core").startswith(classes[run.core[image]]) and own("guess").startswith(
        classes[run.counts.guess[image]]
    )
    assert own("core").endswith("✓" if run.core[image] == run.label[image] else "✗")
    assert own("selected") == f"{run.selecting[image, step]:,} of {run.draws[image]:,}"
    share, bound = (
        number(part.removeprefix("≥")) for part in own("p_class").replace("\xa0", "").split(", ")
    )
    assert share == pytest.approx(100 * run.p_class[image], abs=0.05 + 1e-9)
    assert 0 <= 100 * run.outcomes.p_class[image, step] - bound < 0.01 + 1e-4  # never rounded up
    share, bound = (
        number(part.removeprefix("≥")) for part in own("p_select").replace("\xa0", "").split(", ")
    )
    assert share == pytest.approx(100 * run.p_select[image, step], abs=0.05 + 1e-9)
    assert bound == pytest.approx(100 * run.outcomes.p_select[image, step], abs=0.01)
    assert float(own("alone")) == math.floor(run.alone_radius[image] * 1000) / 1000
    assert f"image {run.evaluation.index[image]}" in page.get_attribute(
        "#radius-chart svg", "aria-label"
    )


def test_wall_answers_to_the_keyboard(page, run):
    page.focus(".wall .tile[tabindex='0']")
    before = page.evaluate("document.activeElement.dataset.image")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    after = int(page.evaluate("document.activeElement.dataset.image"))
    assert (
        str(after) != before
        and page.get_attribute(f'.wall .tile[data-image="{after}"]', "aria-pressed") == "true"
    )
    assert str(run.evaluation.index[after]) in page.inner_text("#detail-title")
    assert page.eval_on_selector_all(".wall .tile[tabindex='0']", "all => all.length") == 1
    assert run.evaluation.classes[run.label[after]] in page.evaluate(
        "document.activeElement.getAttribute('aria-label')"
    )


def test_wall_is_ordered_by_what_is_asked_for(page, run):
    order = lambda: [
        int(image)
        for image in page.eval_on_selector_all(
            ".wall .tile", "all => all.map(t => t.dataset.image)"
        )
    ]
    assert (np.diff(run.median_score[order()]) >= 0).all()
    page.select_option("#order", "class")
    assert (np.diff(run.label[order()]) >= 0).all()
    page.select_option("#order", "index")
    assert order() == list(range(len(run.label)))


def test_every_picture_has_words(page):
    assert page.eval_on_selector_all(
        "svg[role=img]", "all => all.every(svg => svg.getAttribute('aria-label').length > 20)"
    )
    labelled = "all => all.every(tile => tile.getAttribute('aria-label').startsWith('Image '))"
    assert page.eval_on_selector_all(".wall .tile", labelled)
    hidden = "all => all.every(svg => svg.getAttribute('aria-hidden') === 'true')"
    assert page.eval_on_selector_all("svg:not([role=img])", hidden)


def test_choosing_an_image_is_announced(page, run):
    assert page.inner_text("#announcement") == ""
    page.click('.wall .tile[data-image="5"]')
    said = page.inner_text("#announcement")
    assert said.startswith(
        f"Image {run.evaluation.index[5]}, {run.evaluation.classes[run.label[5]]}:"
    )
    assert page.get_attribute("#announcement", "role") == "status"
    page.keyboard.press("Escape")  # nothing lies over the wall here: the focus stays
    assert page.evaluate("document.activeElement.dataset.image") == "5" and page.is_visible(
        "#detail"
    )


@pytest.mark.parametrize("close", ["button", "Escape"])
def test_phone_moves_the_focus_into_the_sheet_and_back(chromium, page_path, close):
    with opened(chromium, page_path, width=375, height=740) as phone:
        phone.focus(".wall .tile[tabindex='0']")
        phone.keyboard.press("ArrowRight")
        chosen = phone.evaluate("document.activeElement.dataset.image")
        phone.keyboard.press("Enter")
        assert phone.evaluate("document.activeElement.id") == "detail" and phone.is_visible(
            "#detail"
        )
        phone.keyboard.press("Tab")
        assert phone.evaluate("document.activeElement.id") == "close"
        phone.keyboard.press("Enter" if close == "button" else "Escape")
        assert not phone.is_visible("#detail")
        assert phone.evaluate("document.activeElement.dataset.image") == chosen


# For each visible element its contrast with what lies behind it, and its text.
CONTRASTS = """selector => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = colour => {
    const [r, g, b] = rgba(colour).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = node => getComputedStyle(node).backgroundColor;
  const contrast = node => {
    let behind = node;
    while (behind.parentElement && rgba(paper(behind))[3] < 255) behind = behind.parentElement;
    const style = getComputedStyle(node),
      two = [luminance(node.closest("svg") ? style.fill : style.color), luminance(paper(behind))];
    return [(Math.max(...two) + 0.05) / (Math.min(...two) + 0.05), node.textContent.slice(0, 40)];
  };
  return [...document.querySelectorAll(selector)].filter(n => n.checkVisibility()).map(contrast);
}"""
TEXTS = (
    *(
        "p",
        "li",
        "th",
        "td:not(.zero)",
        "dt",
        "dd",
        "h2",
        "h3",
        "small",
        "a",
        "label",
        "figcaption",
    ),
    *(".chip", ".chip b", ".results .zero", ".lede b", ".tip", ".chart text", ".concerns li"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_readable_in_light_and_dark(chromium, page_path, scheme):
    with opened(chromium, page_path, scheme=scheme) as page:
        move(page, 20)
        page.locator("#acr-chart").focus()
        page.keyboard.press("ArrowRight")  # so that there is a tooltip too
        for selector in TEXTS:
            found = page.evaluate(CONTRASTS, selector)
            assert found or selector == ".concerns li", f"no {selector} on the page"
            worst = min(found, default=(21, ""))
            assert worst[0] >= 4.5, (selector, worst)  # WCAG 2.2, 1.4.3
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(21, 24, 27)") == (scheme == "dark")


def test_every_table_says_what_its_headings_head(page):
    assert page.eval_on_selector_all("th", "all => all.length > 20 && all.every(th => th.scope)")


def test_alternative_texts_say_what_was_computed(page, run):
    move(page, 30)
    said = page.get_attribute("#correctness-chart svg", "aria-label")
    certified = f"Certified correctly at r = {run.middle_radius:g}: {run.certifiable.sum()} images"
    assert f"{certified}, half of them at " in said
    edge = float(said.split("half of them at ")[1].split(" or below")[0])
    assert (run.median_score[run.certifiable] <= edge).mean() >= 0.5
    assert (run.median_score[run.certifiable] <= edge - 1 / figures.ENTROPY_BINS).mean() <= 0.5
    at_ceiling = (run.correct[:, 30] & (run.outcomes.radius[:, 30] >= run.ceiling)).mean()
    said = page.get_attribute("#profile-chart svg", "aria-label")
    assert f"{100 * at_ceiling:.1f} % at the ceiling" in said


def test_a_radius_of_many_digits_has_its_numbers(chromium, tmp_path):
    run = simulated_run(images=30, theta_step=0.1, radii=[0.0, 2 / 255, 0.25], baseline=False)
    write_page(tmp_path, run)
    with opened(chromium, tmp_path / "index.html") as page:
        move(page, 6)
        for name in ("certified_accuracy@0.00784314", "selection_rate@0.00784314"):
            assert live(page, name) == pytest.approx(100 * run.curve[name].iloc[6], abs=0.05 + 1e-9)
        assert "r = 0.00784314" in page.inner_text("#panels")
        assert "at radius 0.25" in page.inner_text("#lede")  # of all radii the nearest to sigma


def test_an_imagenet_sized_run_stays_usable(chromium, tmp_path):
    run = simulated_run(
        images=500, classes=1000, side=224, theta_step=0.1, n=1000, mechanism="network"
    )
    write_page(tmp_path, run)
    assert (tmp_path / "index.html").stat().st_size < 5_000_000
    with opened(chromium, tmp_path / "index.html") as page:
        assert page.locator(".wall .tile").count() == 500
        move(page, 5)
        page.click('.wall .tile[data-image="321"]')
        assert page.inner_text("#detail-title").startswith(run.evaluation.classes[run.label[321]])
        assert (
            page.inner_text('#detail [data-own="selected"]')
            == f"{run.selecting[321, 5]:,} of {run.draws[321]:,}"
        )
        # The thumbnail is this image: of all of them it looks most like this one, away from its
        # frame and mark.
        page.eval_on_selector(
            '.wall .tile[data-image="321"]',
            "tile => { tile.dataset.answer = 'right'; tile.dataset.route = ''; }",
        )
        seen = Image.open(
            io.BytesIO(page.locator('.wall .tile[data-image="321"] .thumb').screenshot())
        ).convert("RGB")
        inner = lambda picture: np.asarray(picture.resize((16, 16)), dtype=float)[2:-6, 2:-6]
        far = [
            np.abs(inner(seen) - inner(Image.fromarray(image))).mean()
            for image in run.evaluation.image
        ]
        assert np.argmin(far) == 321
        assert (
            page.locator("#acr-chart polyline[stroke-dasharray='5 4']").count() == 1
        )  # selecting by entropy
        assert "ACES selecting by entropy" in page.inner_text("#legend")


def test_without_a_selection_network_there_is_no_second_curve(page):
    assert page.locator("#acr-chart polyline[stroke-dasharray='5 4']").count() == 0
    assert "selecting by entropy" not in page.inner_text("#legend")


def test_print_shows_everything_and_no_controls(chromium, page_path, tmp_path):
    with opened(chromium, page_path, width=700, height=990) as page:
        page.emulate_media(media="print")
        assert (
            not page.is_visible("#theta")
            and not page.is_visible("#close")
            and not page.is_visible("#order")
        )
        assert (
            page.is_visible("#detail")
            and page.is_visible("#provenance")
            and page.is_visible(".results")
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 700
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF") and 3 <= printed.count(b"/Type /Page\n") <= 20


def test_phone_shows_the_whole_page_and_the_detail_as_a_sheet(chromium, page_path):
    with opened(chromium, page_path, width=375, height=740) as phone:
        assert phone.evaluate("document.documentElement.scrollWidth") <= 375
        assert not phone.is_visible("#detail")
        phone.click('.wall .tile[data-image="3"]')
        assert phone.is_visible("#detail")
        phone.click("#close")
        assert not phone.is_visible("#detail")


def test_500_images_and_101_thetas_stay_below_5_mb(tmp_path):
    write_page(tmp_path, simulated_run(images=500))
    assert (tmp_path / "index.html").stat().st_size < 5_000_000


def test_screenshot_is_a_picture_of_the_page(page_path, tmp_path):
    assert screenshot(page_path, tmp_path / "page.png")
    picture = np.asarray(Image.open(tmp_path / "page.png").convert("RGB"))
    assert picture.shape[1] == 1280 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
