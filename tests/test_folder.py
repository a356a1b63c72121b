"""The folder of a saved model: damage is one line, no file outside is read."""

import random

import pytest
import yaml

from aces import ACES
from aces.errors import InputError
from aces.model.folder import read_description
from small_models import digits_model

CASES = 400  # of the fuzz


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    digits_model().save(path)
    return path


@pytest.fixture
def description(folder):
    """The content of aces.yaml, which is put back after the test."""
    path = folder / "aces.yaml"
    text = path.read_bytes()
    yield yaml.safe_load(text)
    path.write_bytes(text)


def write(folder, content) -> None:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    (folder / "aces.yaml").write_text(text)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": 99}, "format 99"),
        ({"format": "2"}, "format 2"),
        ({"format": None}, "format None"),
        ({"format": True}, "format True"),
        ({"num_classes": 0}, "num_classes=0"),
        ({"num_classes": "ten"}, "num_classes=ten"),
        ({"sigma": -1.0}, "sigma=-1.0"),
        ({"sigma": float("nan")}, "sigma=nan"),
        ({"sigma": "0.25"}, "sigma=0.25"),
        ({"theta": 0.12345}, "theta=0.12345"),
        ({"theta": [0.5]}, "theta="),
        ({"rule": 3}, "rule=3"),
        ({"rule": "guess"}, "rule='guess'"),
        ({"noise": "loud"}, "noise='loud'"),
        ({"precision": "int1"}, "precision='int1'"),
        ({"classes": ["a"]}, "1 names of classes"),
        ({"classes": {"a": 1}}, "classes="),
        ({"shape": [8, 8]}, "shape="),
        ({"shape": [1, 8, -8]}, "shape="),
        ({"shape": [1, 10**9, 8]}, "shape="),
        ({"resize": "large"}, "resize=large"),
        ({"networks": []}, "networks="),
        ({"networks": {"core": {}}}, "networks="),
        ({"surprise": 1}, "unknown surprise"),
    ],
)
def test_a_wrong_value_is_named(folder, description, change, message):
    write(folder, description | change)
    with pytest.raises(InputError, match=message) as caught:
        ACES.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["sigma", "theta", "networks", "num_classes", "format"])
def test_a_missing_value_is_named(folder, description, missing):
    write(folder, {name: value for name, value in description.items() if name != missing})
    with pytest.raises(InputError, match=missing):
        ACES.load(folder)


def test_a_role_never_leads_out_of_the_folder(folder, description, tmp_path):
    digits_model().save(tmp_path / "other")
    about = description["networks"]
    outside = f"../{(tmp_path / 'other').name}/core"
    for role in ("../../x", outside, str(tmp_path / "other" / "core"), "core/../core", ""):
        write(folder, description | {"networks": about | {role: about["core"]}})
        with pytest.raises(InputError, match="networks="):
            ACES.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "",
        "[1]",
        "a: &x [*x]",
        "- " * 5000 + "x",
        "!!python/object:os.system x",
        "2001-99-99",
        "!!map [1]",
    ]
    + ["format: 0x" + "f" * 9999, "a: &a {b: 1}\nc: {<<: *a}"],
)
def test_what_is_no_description_is_one_line(folder, description, text):
    write(folder, text)
    with pytest.raises(InputError) as caught:
        ACES.load(folder)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_bytes_that_are_no_text_are_one_line(folder, description):
    (folder / "aces.yaml").write_bytes(b"\xff\xfe\x00sigma: 1")
    with pytest.raises(InputError, match="not YAML"):
        ACES.load(folder)


def test_a_value_that_is_there_twice_is_refused(folder, description):
    """PyYAML would take the second."""
    with (folder / "aces.yaml").open("a") as file:
        file.write("sigma: 9.0\n")
    with pytest.raises(InputError, match="the key 'sigma' is there twice"):
        ACES.load(folder)


def test_the_first_format_is_still_read(folder, description):
    for name in ("rule", "noise", "precision"):
        del description[name]
    write(folder, description | {"format": 1})
    model = ACES.load(folder)
    assert (model.rule, model.noise, model.precision) == ("paper", "float", "float32")


def test_random_damage_is_one_line_or_the_same_model(folder, description):
    """Bytes are changed, removed or doubled at random; nothing but InputError may come out."""
    generator, whole = random.Random(0), (folder / "aces.yaml").read_bytes()
    refused = 0
    for _ in range(CASES):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            place, kind = generator.randrange(len(damaged)), generator.randrange(3)
            if kind == 0:
                damaged[place] = generator.randrange(256)
            elif kind == 1:
                del damaged[place : place + generator.randint(1, 20)]
            else:
                damaged[place:place] = damaged[place : place + generator.randint(1, 20)]
        (folder / "aces.yaml").write_bytes(damaged)
        try:
            read_description(folder)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > CASES // 3
