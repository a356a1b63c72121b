"""`aces bench`: it measures what it says, in one run. How fast that is, no test asserts."""

import json
import re

import numpy as np
import pytest
import torch
import yaml

from aces import params, paths, sampling
from aces.bench.precision import _Drawer
from aces.bench.rule import measure_rule
from aces.cli import main
from aces.rule.counts import write_counts
from aces.runtime import Runtime
from aces.sampling import forward
from made_counts import from_joint
from small_models import digits, digits_model, write_project
from stages.sample import sample
from stages.subsample import subsample
from stages.train_select import write_nothing

pytestmark = pytest.mark.slow


def test_loop_and_rule_agree():
    """The bench's loop gives the answers of the vectorised rule, so the two may be compared."""
    found = measure_rule(1)
    assert found["agree"] is True
    assert (found["images"], found["thetas"], found["classes"]) == (500, 1001, 10)
    assert found["seconds"] > 0 and found["ratio"] == found["loop_seconds"] / found["seconds"]


def test_figures_are_printed_and_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("aces.bench.training.IMAGES", 512)
    out = tmp_path / "bench.json"
    assert (
        main(
            [
                "bench",
                "sampler",
                "training",
                "--network",
                "tiny",
                "--seconds",
                "0.1",
                "--repeats",
                "1",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    shown, figures = capsys.readouterr().out, json.loads(out.read_text())
    speeds = figures["sampler"]["draws_per_second"]
    assert figures["sampler"]["sampler_over_reference"] == speeds["sampler"] / speeds["reference"]
    assert figures["sampler"]["sampler_over_forward"] == speeds["sampler"] / max(
        speed for name, speed in speeds.items() if name.startswith("forward")
    )
    parts = figures["training"]
    assert 0 < parts["work"] <= 1 and parts["work"] == pytest.approx(
        parts["forward"] + parts["backward"] + parts["optimizer"]
    )
    assert f"{figures['sampler']['sampler_over_reference']:.2f} times the reference way" in shown
    assert f"{parts['work']:.0%} of the time in the network" in shown


def test_scaling_compares_runs_of_up_to_eight_times_the_draws(capsys):
    assert (
        main(
            [
                "bench",
                "scaling",
                "--network",
                "tiny",
                "--seconds",
                "0.05",
                "--repeats",
                "1",
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)["scaling"]
    for axis, ratio in (("draws", found["draws_ratio"]), ("images", found["images_ratio"])):
        sizes = {int(size): seconds for size, seconds in found["seconds"][axis].items()}
        assert [size // min(sizes) for size in sizes] == [1, 2, 4, 8]
        assert ratio == sizes[max(sizes)] / sizes[min(sizes)] / 8 > 0


@pytest.mark.parametrize(
    "wrong", [["sampling"], ["rule", "--repeats", "0"], ["sampler", "--seconds", "0"]]
)
def test_a_wrong_request_is_refused(wrong, capsys):
    assert main(["bench", *wrong]) == 2
    assert "expected" in capsys.readouterr().err


def test_the_time_to_accuracy_trains_the_networks_of_params_yaml(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("aces.bench.training.IMAGES", 512)
    (tmp_path / "params.yaml").write_text(
        "dataset: {name: digits, stride: 2}\n"
        "core: {arch: tiny, train: {epochs: 3, batch: 64, lr: 0.1}}\n"
        "certify: {arch: tiny, train: {epochs: 2, batch: 64, lr: 0.05, optimizer: muon}}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "training", "--repeats", "1", "--to-accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["training"]
    # The shares of the peak follow from the other figures.
    for precision, speed in found["images_per_second"].items():
        expected = found["operations_per_image"] * speed
        expected /= found["peak_operations_per_second"][precision]
        assert found["peak_share"][precision] == pytest.approx(expected) and expected > 0
    assert found["precision"] in found["images_per_second"]
    core, certify = found["to_accuracy"]["core"], found["to_accuracy"]["certify"]
    assert core["accuracy"] > 0.5 and certify["accuracy"] > 0.3, "chance is 0.1"
    assert core["seconds"] > 0 and core["arch"] == "tiny"


def test_operations_of_a_convolution_are_counted_by_hand():
    """tiny on 32 x 32: the stem's forward pass alone has 2 * 32 * 32 * 16 * 27 operations."""
    from aces.bench.training import _operations_per_image

    stem = 2 * 32 * 32 * 16 * 27
    block = 2 * 16 * 16 * (16 * 32 * 9 + 32 * 32 * 9 + 16 * 32)
    head = 2 * 32 * 10
    # The backward pass has the gradients of the weights and of the input; the stem needs only one.
    assert _operations_per_image("tiny") == pytest.approx(2 * stem + 3 * (block + head), rel=0.01)


def test_early_stopping_is_simulated_from_the_counts_of_a_run(tmp_path, capsys, monkeypatch):
    """Images that are sure of their class stop earlier than those of a coin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aces.bench.stopping.DRAWS", (100_000,))
    drawn = dict(images=8, n0=100, n=2000, n_predict=0, rng=np.random.default_rng(0))
    shares = {}
    for name, joint in (
        ("sure", [[0.0, 0.0], [0.97, 0.03]]),
        ("coin", [[0.25, 0.25], [0.25, 0.25]]),
    ):
        write_counts(tmp_path / "samples" / "counts.npz", from_joint(joint, **drawn))
        assert main(["bench", "stopping", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["stopping"]
        assert found["images"] == 8
        shares[name] = found["plans"]["n = 100,000, five looks"]
    assert shares["sure"]["draws"] < 0.6 < shares["coin"]["draws"] <= 1
    for rule in ("confident", "paper"):
        kept, at_worst = (shares["sure"][rule][name] for name in ("kept", "kept_at_worst"))
        assert 0.9 < at_worst <= kept + 1e-12 <= 1 + 2e-12
    assert main(["bench", "stopping"]) == 0
    assert "of the draws; radius kept" in capsys.readouterr().out


def test_float32_is_drawn_again_with_the_noise_of_the_run():
    """With the settings of a float32 run its network gives the run's counts once more."""
    network, evaluation = digits_model().networks["certify"], digits()
    counts = sampling.sample(
        network,
        evaluation.image,
        sampling.DrawPlan(sigma=0.25, n0=20, n=150, n_predict=40, chunk=60, seed=3),
        num_classes=10,
        runtime=Runtime(device="cpu"),
        index=evaluation.index,
        label=evaluation.label,
    )
    drawer = _Drawer(network, evaluation, torch.device("cpu"))
    again = drawer.draw(counts.settings)
    for name in ("classes", "score", "doubt", "joint_score", "joint_doubt", "guess", "label"):
        np.testing.assert_array_equal(getattr(again, name), getattr(counts, name), err_msg=name)
    assert again.settings == counts.settings
    assert drawer.same_class(drawer.prepared(network, counts.settings), counts.settings) == 1


def test_int8_is_compared_with_float32(tmp_path, capsys, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = yaml.safe_load(paths.PARAMS.read_text())
    given["sample"] |= {"precision": "int8", "n": 300}
    paths.PARAMS.write_text(yaml.safe_dump(given))
    settings = params.load(paths.PARAMS)
    subsample(settings, None)
    write_nothing(settings)
    sample(settings, None)
    assert main(["bench", "precision", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["precision"]
    assert (found["precision"], found["n"]) == ("int8", 300)
    assert 0.9 < found["same_class"] < 1
    for part in ("differences", "other_noise"):
        for name, difference in found[part].items():
            assert 0 <= difference["mean"] <= difference["largest"] < 0.2, name
        assert found[part]["acr"]["largest"] > 0
    assert main(["bench", "precision"]) == 0
    assert "of the draws have the same class in int8 and in float32" in capsys.readouterr().out

    monkeypatch.setattr(forward, "cpu_kind", lambda: "another processor")
    assert main(["bench", "precision"]) == 2
    assert re.search(
        r"here it would be drawn by \w+ [\d.]+ another processor", capsys.readouterr().err
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    sample(settings.replace(sample=settings.sample.replace(precision="float32")), None)
    assert main(["bench", "precision"]) == 2
    assert "expected another precision than float32" in capsys.readouterr().err
