"""params.yaml: every complaint names the key, the value and the remedy, before any work starts."""

from pathlib import Path

import pytest
import yaml

from aces import params
from aces.errors import InputError
from aces.params import load
from aces.params.reading import MOST_BYTES
from aces.training import methods


@pytest.fixture
def tree():
    with open("profiles/laptop.yaml") as file:
        return yaml.safe_load(file)


def complaint(tmp_path, tree) -> str:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_committed_parameters_are_a_profile():
    import pathlib

    assert load("params.yaml") in [load(path) for path in pathlib.Path("profiles").glob("*.yaml")]


def test_unknown_key(tmp_path, tree):
    tree["sample"]["n1"] = 100
    assert "unknown key 'n1' in sample" in complaint(tmp_path, tree)


def test_missing_key(tmp_path, tree):
    del tree["certify"]["consistency"][0]["eta"]
    assert "missing key 'eta' in certify.consistency.0" in complaint(tmp_path, tree)


def test_a_number_that_yaml_reads_as_text(tmp_path, tree):
    tree["combine"]["alpha"] = "1e-3"
    message = complaint(tmp_path, tree)
    assert "combine.alpha='1e-3'" in message and "0.001" in message


@pytest.mark.parametrize(
    "path, value",
    [
        (("sigma",), 0.0),
        (("sigma",), float("nan")),
        (("seed",), -1),
        (("seed",), True),
        (("dataset", "stride"), 0),
        (("certify", "method"), "magic"),
        (("select", "score"), "dice"),
        (("select", "eta"), 1.5),
        (("sample", "precision"), "int4"),
        (("sample", "n0"), 0),
        (("combine", "alpha"), 0.5),
        (("combine", "multiplicity"), "none"),
        (("combine", "theta_step"), 0.0015),
        (("combine", "theta_step"), 0.0),
        (("combine", "radii"), [0.5, 0.25]),
        (("core", "train", "momentum"), 1.0),
        (("report", "thetas"), [1.1]),
        (("baseline", "sigmas"), [0.0]),
        (("combine", "radii"), []),
        (("combine", "radii"), [0.25, 0.25000001]),
        (("report", "thetas"), []),
        (("report", "thetas"), [0.3333]),
        (("sample", "adaptive", "thetas"), []),
        (("sample", "adaptive", "thetas"), [0.3333]),
        (("sample", "adaptive", "looks"), [0.5, 0.9, 0.95]),
        (("sample", "adaptive", "spend"), [0.5, 0.5, 0.5]),
    ],
)
def test_values_out_of_range_are_named(tmp_path, tree, path, value):
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    assert path[-1] in complaint(tmp_path, tree)


def test_a_method_without_settings(tmp_path, tree):
    tree["certify"] |= {"method": "macer", "macer": []}
    assert "certify.macer" in complaint(tmp_path, tree)


def test_a_radius_loss_that_would_never_set_in(tmp_path, tree):
    tree["certify"]["method"] = "macer"
    tree["certify"]["macer"][0]["after_milestone"] = 1
    assert "certify.macer.after_milestone=1" in complaint(tmp_path, tree)


@pytest.mark.parametrize("name", ["n", "n_predict"])
def test_too_few_draws_for_alpha_say_how_many_are_needed(tmp_path, tree, name):
    tree["sample"][name] = 10
    message = complaint(tmp_path, tree)
    assert f"sample.{name}=10" in message and "at least 12" in message


def test_too_few_draws_to_choose_theta_say_how_many_are_needed(tmp_path, tree):
    tree["calibrate"]["n"] = 10
    assert "calibrate.n=10 is too small for combine.alpha=0.001" in complaint(tmp_path, tree)


def test_the_number_asked_for_is_enough_and_one_less_is_not():
    # The strictest tests: a lower bound at alpha / 2, and a two-sided test at alpha / 2, when every
    # draw agrees.
    statistics = pytest.importorskip("aces.rule.statistics")
    for alpha in (0.1, 0.01, 0.001, 1e-6):
        needed = params.needed_draws(alpha)
        assert statistics.lower_bound(needed, needed, alpha=alpha / 2) > 0.5
        assert statistics.two_sided_p_value(needed, needed) <= alpha / 2
        fewer = needed - 1
        assert (
            statistics.lower_bound(fewer, fewer, alpha=alpha / 2) <= 0.5
            or statistics.two_sided_p_value(fewer, fewer) > alpha / 2
        )


def test_settings_of_the_nearest_sigma_apply():
    blocks = [
        params.Consistency(sigma=s, draws=2, weight=w, eta=0.5)
        for s, w in ((0.25, 20.0), (0.5, 10.0), (1.0, 5.0))
    ]
    found = [methods.nearest(blocks, s).weight for s in (0.1, 0.3, 0.6, 2.0)]
    assert found == [20.0, 20.0, 10.0, 5.0]
    assert methods.nearest([], 0.25) is None


def test_thetas_are_exact_on_the_grid():
    thetas = load("profiles/laptop.yaml").combine.thetas
    assert thetas[0] == 0.0 and thetas[-1] == 1.0 and 0.29 in thetas and len(thetas) == 101


def test_flatten_names_every_leaf():
    flat = params.flatten(load("profiles/laptop.yaml"))
    assert flat["sample.adaptive.tolerance"] == 0.015 and flat["certify.macer.0.beta"] == 16.0


def test_every_key_has_a_default():
    assert params.parse("") == params.Params()


def test_a_renamed_key_says_its_new_name(tmp_path, tree):
    tree["select"]["mechanism"] = tree["select"].pop("score")
    assert "it is called score now" in complaint(tmp_path, tree)


# Nine lists of ten references to the one before: a billion values.
REPEATED = "a0: &a0 [x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    "text, said",
    [
        ("sigma: 0.25\nsigma: 0.5", "twice"),
        ("combine:\n  radii: some", "expected auto, or a list of numbers"),
        ("combine:\n  radii:\n    - a", "combine.radii.0='a'"),
        ("core: 3", "expected the keys arch"),
        ("- 1", "expected the keys sigma"),
        ("sample:\n  nn: 3", "did you mean n"),
        ("x: " + "[" * 50 + "]" * 50, "levels deep"),
        ("seed: 1" + "0" * 400, "expected a number below 4294967296"),
        ("sample:\n  n: 1" + "0" * 400, "expected a number below 2147483648"),
        ("sample:\n  n0: 2147483648", "sample.n0=2147483648: expected a number below 2147483648"),
        ("calibrate:\n  n: 2147483648", "expected a number below 2147483648"),
        ("[1", "not YAML"),
        ("sigma: 1" + "0" * 400, "sigma="),
        ("sigma: 5.0e-324", "sigma=5e-324: expected a number of at least 1e-06"),
        ("combine: {theta_step: 1.0e+308}", "combine.theta_step=1e+308: expected 1/1000 times"),
        ("combine: {alpha: 5.0e-324}\nsample: {n: 500}", "set sample.n to at least 1076"),
        ("x: " + "[" * 5000, "not YAML"),
        ("sigma: !!map [1]", "not YAML"),
        ("sigma: !!bool perhaps", "not YAML"),
        ("seed: 0x" + "f" * 9999, "a number of 39,996 bits"),
        ("a: &a {b: 1}\nc: {<<: *a}", "line 2: `<<` is not supported"),
        (REPEATED, "more than 1,000,000 values"),
    ],
)
def test_odd_files_are_refused_in_one_line(text, said):
    with pytest.raises(InputError) as caught:
        params.parse(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_utf8_is_refused_in_one_line(tmp_path):
    (tmp_path / "params.yaml").write_bytes("dataset: {name: é}".encode("latin-1"))
    with pytest.raises(InputError, match="params.yaml: it is not UTF-8 text: save it as UTF-8"):
        params.load(tmp_path / "params.yaml")


def test_what_is_no_parameter_file_is_refused_unread(tmp_path):
    large = tmp_path / "large.yaml"
    with open(large, "wb") as file:
        file.truncate(2 * MOST_BYTES)
    with pytest.raises(InputError, match="large.yaml: .* bytes: expected a parameter file"):
        params.load(large)
    with pytest.raises(InputError, match="it cannot be read .Is a directory."):
        params.load(tmp_path)


def test_the_schema_for_editors_is_current():
    assert Path("params.schema.json").read_text() == params.schema(), "run `make schema`"
