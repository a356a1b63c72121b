"""A counts file is checked when it is read: what is inconsistent is refused in one line."""

import dataclasses
import json
import zipfile

import numpy as np
import pytest

from aces.errors import InputError
from aces.rule.counts import Counts, Looks, Round, check_counts, read_counts, write_counts
from made_counts import from_joint, random_counts


def made(*, looks: bool = True) -> Counts:
    return random_counts(np.random.default_rng(3), images=5, n=40, looks=looks)


@pytest.mark.parametrize("looks", [False, True])
def test_what_was_written_is_read_and_the_same_counts_give_the_same_bytes(tmp_path, looks):
    counts = made(looks=looks)
    write_counts(tmp_path / "a.npz", counts)
    read = read_counts(tmp_path / "a.npz")
    assert read.settings == counts.settings and set(read.looks) == set(counts.looks)
    for each in dataclasses.fields(Counts):
        if each.name not in ("settings", "looks"):
            np.testing.assert_array_equal(getattr(read, each.name), getattr(counts, each.name))
    for round_, looks_ in counts.looks.items():
        for name, values in vars(looks_).items():
            np.testing.assert_array_equal(getattr(read.looks[round_], name), values)
    write_counts(tmp_path / "b.npz", read)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_a_write_that_does_not_end_leaves_the_old_file(tmp_path, monkeypatch):
    """counts.npz once was written in place: a kill left half of it."""
    write_counts(tmp_path / "counts.npz", made())
    before = (tmp_path / "counts.npz").read_bytes()

    def half(file, **arrays):
        file.write(before[: len(before) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", half)
    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(KeyboardInterrupt):
        write_counts(tmp_path / "counts.npz", made(looks=False))
    assert (tmp_path / "counts.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["counts.npz"]


def test_simulated_counts_are_consistent():
    rng = np.random.default_rng(0)
    check_counts(
        from_joint([[0, 0.3], [0.2, 0.5]], images=20, n0=5, n=50, n_predict=0, rng=rng, theta=1.0)
    )
    for seed in range(20):
        check_counts(random_counts(np.random.default_rng(seed), looks=seed % 2 == 0))


def more(array, place, amount=1):
    """A copy with a number changed."""
    array = np.array(array)
    array[place] += amount
    return array


def below_zero(c: Counts) -> np.ndarray:
    """The classes with a negative count, and all sums as before."""
    a, b = (each for each in range(3) if each != c.guess[0])
    return more(more(c.classes, (1, 0, a), -1000), (1, 0, b), 1000)


DAMAGE = {
    "negative": lambda c: {"classes": below_zero(c)},
    "lost draw": lambda c: {"invalid": more(c.invalid, (0, 0))},
    "moved bins": lambda c: {"score": more(more(c.score, (1, 0, 3)), (1, 0, 4), 1)},
    "joint above": lambda c: {"joint_doubt": more(c.joint_doubt, (1, 0, 777), 1)},
    "joint of other bins": lambda c: {"joint_score": np.roll(c.joint_score, 1, axis=2)},
    "joint in round guess": lambda c: {"joint_score": more(c.joint_score, (0, 0, 0), 1)},
    "guess -1": lambda c: {"guess": more(c.guess, 0, -1 - int(c.guess[0]))},
    "another guess": lambda c: {"guess": (c.guess + 1) % 3},
    "other winners of round guess": lambda c: {
        "classes": np.stack([np.roll(c.classes[0], 1, axis=1), *c.classes[1:]])
    },
    "image twice": lambda c: {"index": np.zeros_like(c.index)},
    "class too high": lambda c: {"label": more(c.label, 0, 3)},
    "label -2": lambda c: {"label": more(c.label, 0, -2)},
    "fractions": lambda c: {"doubt": c.doubt.astype(float)},
    "another shape": lambda c: {"doubt": c.doubt[:, :, 1:]},
    "fewer images": lambda c: {"index": c.index[1:]},
    "two dimensions": lambda c: {"classes": c.classes[0]},
    "a sum that overflows": lambda c: {
        "score": more(c.score.astype(np.int64), (1, 0, [1, 2, 3, 4]), 2**62)
    },
    "an unsigned sum that overflows": lambda c: {
        "doubt": more(c.doubt.astype(np.uint64), (1, 0, [1, 2]), 2**63)
    },
    "no image": lambda c: {"classes": c.classes[:, :0]},
    "fewer draws than said": lambda c: {"settings": dataclasses.replace(c.settings, n0=8)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_inconsistent_counts_are_refused(tmp_path, damage):
    counts = made(looks=False)
    refused(tmp_path, dataclasses.replace(counts, **DAMAGE[damage](counts)))


def shrinking(k: Looks) -> np.ndarray:
    """The scores with other bins at the second of three looks, where that look was made."""
    score = k.score.copy()
    late = k.made == 3
    score[1, late] = np.roll(score[1, late], 1, axis=1)
    return score


LOOKS_DAMAGE = {
    "other bins at every look": lambda k: {"score": np.roll(k.score, 1, axis=2)},
    "other bins at one look": lambda k: {"score": shrinking(k)},
    "made 0": lambda k: {"made": more(k.made, 0, -int(k.made[0]))},
    "made too often": lambda k: {"made": more(k.made, 0, 3)},
    "made with other totals": lambda k: {"made": np.where(k.made < 3, k.made + 1, 1)},
    "not ascending": lambda k: {"draws": k.draws[::-1].copy()},
    "fewer than n": lambda k: {"draws": k.draws - 1},
    "no look": lambda k: {"draws": k.draws[:0], "spend": k.spend[:0]},
    "spends too much": lambda k: {"spend": k.spend * 1.2},
    "spends nothing": lambda k: {"spend": more(k.spend, 0, -float(k.spend[0]))},
    "whole spend": lambda k: {"spend": np.array([1, 1, 1])},
    "forged classes": lambda k: {"classes": k.classes + 1},
    "lost in a further look": lambda k: {"classes": k.classes[::-1].copy()},
    "forged score": lambda k: {"score": more(k.score, (0, 0, 5))},
    "forged doubt": lambda k: {"doubt": more(k.doubt, (-1, 0, 5), 1)},
    "fewer draws at the first look": lambda k: {"draws": np.array([1, *k.draws[1:]])},
    "earlier draws than there were": lambda k: {"draws": np.array([1, 2, k.draws[-1]])},
    "fractions": lambda k: {"joint_doubt": k.joint_doubt.astype(float)},
}


@pytest.mark.parametrize("damage", LOOKS_DAMAGE)
def test_forged_looks_are_refused(tmp_path, damage):
    counts = made()
    looks = dataclasses.replace(
        counts.looks[Round.BOUND], **LOOKS_DAMAGE[damage](counts.looks[Round.BOUND])
    )
    refused(tmp_path, dataclasses.replace(counts, looks=counts.looks | {Round.BOUND: looks}))


def test_invalid_draws_that_the_looks_do_not_have_are_refused(tmp_path):
    counts = made()
    refused(tmp_path, dataclasses.replace(counts, invalid=more(counts.invalid, (1, 0))))


def test_looks_at_round_guess_are_refused(tmp_path):
    counts = made()
    looks = {Round.GUESS: counts.looks[Round.BOUND]}
    refused(tmp_path, dataclasses.replace(made(looks=False), looks=looks))


SETTINGS_DAMAGE = [
    ("format", 2),
    ("sigma", float("nan")),
    ("sigma", 10**400),
    ("tv", 0.5),
    ("n", -1),
    ("n0", 2**40),
    ("chunk", 0),
    ("chunk", 10**400),
    ("seed", "zero"),
    ("score", 3),
    ("n_predict", True),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS_DAMAGE, ids=lambda it: str(it)[:12])
def test_settings_that_cannot_be_are_refused(tmp_path, name, value):
    counts = made()
    settings = dataclasses.replace(counts.settings, **{name: value})
    refused(tmp_path, dataclasses.replace(counts, settings=settings))


@pytest.mark.parametrize(
    "settings",
    ["no json", "[]", "3", '{"format": 3}', "{}", "[" * 9999],
    ids=lambda text: text[:9],
)
def test_settings_that_are_no_settings_are_refused(tmp_path, settings):
    rewritten(tmp_path, settings=np.array(settings))


def test_missing_and_unknown_arrays_are_refused(tmp_path):
    rewritten(tmp_path, extra=np.zeros(3))
    rewritten(tmp_path, drop="doubt")
    rewritten(tmp_path, drop="looks_bound_made")
    rewritten(tmp_path, drop="settings")
    rewritten(tmp_path, settings=np.zeros(0))


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "counts.npz").write_bytes(b"no zip")
    for name in ("counts.npz", "absent.npz"):
        with pytest.raises(InputError, match="dvc repro"):
            read_counts(tmp_path / name)


def test_a_file_that_holds_more_than_arrays_is_refused(tmp_path):
    write_counts(tmp_path / "counts.npz", made())
    with zipfile.ZipFile(tmp_path / "counts.npz", "a") as archive:
        archive.writestr("guess", b"numpy reads this member before guess.npy, as bytes")
    with pytest.raises(InputError, match="guess is no array"):
        read_counts(tmp_path / "counts.npz")


def refused(folder, counts: Counts) -> None:
    """The file is refused in one line that says what to do."""
    settings = json.dumps(dataclasses.asdict(counts.settings))
    arrays = {
        name: value for name, value in vars(counts).items() if name not in ("settings", "looks")
    }
    for round_, looks in counts.looks.items():
        arrays |= {
            f"looks_{round_.name.lower()}_{each.name}": getattr(looks, each.name)
            for each in dataclasses.fields(Looks)
        }
    np.savez(folder / "counts.npz", settings=np.array(settings), **arrays)
    with pytest.raises(InputError, match="not usable.*dvc repro -f sample") as raised:
        read_counts(folder / "counts.npz")
    assert "\n" not in str(raised.value)


def rewritten(folder, *, drop: str = "", **changes) -> None:
    """A good file with arrays changed, added or left out is refused."""
    write_counts(folder / "good.npz", made())
    arrays = dict(np.load(folder / "good.npz")) | changes
    arrays.pop(drop, None)
    np.savez(folder / "counts.npz", **arrays)
    with pytest.raises(InputError, match="not usable"):
        read_counts(folder / "counts.npz")
