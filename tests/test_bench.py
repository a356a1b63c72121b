"""`aces bench`: it measures what it says, in one run. How fast that is, no test asserts."""

import json

import pytest

from aces.bench.rule import measure_rule
from aces.cli import main


def test_loop_and_rule_agree():
    """The bench's loop gives the answers of the vectorised rule, so that the two may be compared."""
    found = measure_rule(1)
    assert found["agree"] is True
    assert (found["images"], found["thetas"], found["classes"]) == (500, 1001, 10)
    assert found["seconds"] > 0 and found["ratio"] == found["loop_seconds"] / found["seconds"]


def test_figures_are_printed_and_written(tmp_path, capsys):
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
