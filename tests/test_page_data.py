"""The numbers behind the page: those of the run, few enough for a browser."""

import base64

import numpy as np
import pytest

from aces.reporting import payload, write_report
from aces.reporting.inputs import STEPS, shown_steps
from aces.reporting.sprite import SIDE, make_sprite
from simulated import data_of, simulated_run

pytestmark = pytest.mark.slow


def test_page_data_are_the_run_s(run, report):
    data = data_of(report / "index.html")
    steps = len(run.thetas)
    assert (
        data["thetas"] == run.thetas.tolist() and data["curve"]["nac"] == run.curve["nac"].tolist()
    )
    assert data["curve"]["selection_rate"][1] == run.curve["selection_rate@0.25"].tolist()
    radius = data["images"]["radius"].reshape(-1, steps)
    assert (radius <= run.outcomes.radius).all() and np.allclose(
        radius, run.outcomes.radius, rtol=1e-6
    )
    assert (data["images"]["route"].reshape(-1, steps) == run.outcomes.route).all()
    assert (data["images"]["natural"].reshape(-1, steps) == run.outcomes.natural_prediction).all()
    assert (data["images"]["selecting"].reshape(-1, steps) == run.selecting).all()
    code = data["all"]["code"].reshape(steps, -1).T  # of all images, for the tables by class
    assert ((code & 3) == run.outcomes.route).all()
    assert np.allclose(((code & payload.NATURAL_RIGHT) > 0).mean(axis=0), run.curve["nac"])
    certified = ((code & payload.CERTIFIED_RIGHT) > 0).mean(axis=0)
    lead = run.radius_names[data["lead"]]
    assert lead == "0.25" and np.allclose(certified, run.curve[f"certified_accuracy@{lead}"])
    histogram = data["images"]["histogram"].reshape(-1, data["images"]["bins"])
    assert (histogram.sum(axis=1) == run.draws).all()


def test_area_below_the_certified_accuracy_is_the_acr(run, report):
    data = data_of(report / "index.html")
    profile = data["profile"]["aces"].reshape(-1, len(data["profile"]["radius"]))
    step = data["profile"]["radius"][1]
    area = (profile[:, 1:].sum(axis=1) + profile[:, :-1].sum(axis=1)) / 2 * step
    assert np.allclose(area, run.curve["acr"], atol=step)


def test_data_cannot_close_their_script_element(run, tmp_path):
    run.evaluation.classes[0], kept = "</script><b>", run.evaluation.classes[0]
    try:
        write_report(tmp_path, run)
    finally:
        run.evaluation.classes[0] = kept
    assert data_of(tmp_path / "index.html")["classes"]["0"] == "</script><b>"


def test_large_images_and_a_thousand_classes_stay_small(tmp_path):
    run = simulated_run(images=40, classes=1000, side=224, mechanism="network")
    write_report(tmp_path, run)
    data = data_of(tmp_path / "index.html")
    assert len(data["classes"]) < 200 and data["score"] == "selection score"
    assert (tmp_path / "index.html").stat().st_size < 500_000  # of 5 MB for 500 images


def test_a_page_of_many_images_shows_even_ones_and_the_most_telling(run, monkeypatch):
    assert payload.shown_images(run).tolist() == list(range(len(run.label)))
    monkeypatch.setattr(payload, "IMAGES", 30)
    monkeypatch.setattr(payload, "TELLING", 10)
    shown = payload.shown_images(run)
    assert 20 <= len(shown) <= 30 and (np.diff(shown) > 0).all()
    assert {0, len(run.label) - 1} <= set(shown)
    lost = np.where(run.alone_correct, run.alone_radius, 0)
    lost = lost - run.outcomes.radius[:, run.working_point.step] * run.alone_correct
    assert lost.argmax() in shown


def test_a_page_of_many_thetas_shows_evenly_spaced_ones_and_the_working_point():
    for count in (2, 101, 126, 201, 251, 501, 1001):
        steps = shown_steps(count)
        assert steps[0] == 0 and steps[-1] == count - 1 and len(set(np.diff(steps))) == 1
        assert len(steps) <= STEPS + 1
    assert 437 in shown_steps(1001, always=437)


@pytest.mark.parametrize("radii", [[0.0], [0.0, 9.0]])
def test_a_run_that_can_reach_no_radius_is_reported_all_the_same(radii, tmp_path):
    run = simulated_run(images=3, theta_step=1.0, radii=radii, baseline=False)
    write_report(tmp_path, run)
    assert data_of(tmp_path / "index.html")["radii"] == radii and run.middle_radius == 0


@pytest.mark.parametrize(
    ("side", "channels", "native"), [(8, 1, True), (32, 3, True), (224, 3, False)]
)
def test_sprite_holds_every_image_in_its_place(side, channels, native):
    from io import BytesIO

    from PIL import Image

    images = np.zeros((7, side, side, channels), np.uint8)
    images[:] = (np.arange(7) * 30)[:, None, None, None]
    sprite = make_sprite(images)
    assert sprite.native == native and sprite.columns * sprite.rows >= 7
    sheet = np.asarray(Image.open(BytesIO(base64.b64decode(sprite.uri.split(",")[1]))).convert("L"))
    edge = min(side, SIDE)
    for place in range(7):
        row, column = divmod(place, sprite.columns)
        assert abs(int(sheet[row * edge + edge // 2, column * edge + edge // 2]) - 30 * place) <= 3
