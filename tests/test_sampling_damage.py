"""Scratch that is damaged, forged or of another run: what is lost is drawn again, and nothing wrong is
counted.
"""

import base64
import json
import os
import resource
import shutil
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

import odd_networks
from aces.errors import InputError
from aces.sampling import shards
from aces.sampling.shards import read_keys
from aces.sampling.tally import width
from sampled import SMALL, sample, written

pytestmark = pytest.mark.slow

NETWORK = odd_networks.convolutional()
UNITS = 2 * (1 + 4 + 1)


def draw(scratch=None, network=NETWORK, **changes):
    return sample(network, odd_networks.images(2), **SMALL | changes, scratch=scratch)


def damaged(lines: list[bytes]) -> dict[str, bytes]:
    """What can happen to a file, and how many of its units are then lost."""
    flipped = bytearray(lines[3])
    flipped[len(flipped) // 2] ^= 1
    return {
        "cut within a line": (b"".join(lines)[:-20], 1),
        "cut after a line": (b"".join(lines[:5]), len(lines) - 5),
        "a byte flipped": (b"".join([*lines[:3], bytes(flipped), *lines[4:]]), 1),
        "a hole of zeros": (
            b"".join([*lines[:2], bytes(len(lines[2])), *lines[3:]]),
            2,
        ),  # it swallows a newline
        "lines twice": (b"".join(lines * 2), 0),
        "noise in front": (os.urandom(100).replace(b"\n", b"") + b"\n" + b"".join(lines), 0),
        "a count changed by hand": (
            b"".join([lines[0].replace(lines[0].split()[2], lines[1].split()[2]), *lines[1:]]),
            1,
        ),
        "empty": (b"", len(lines)),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "cut within a line",
        "cut after a line",
        "a byte flipped",
        "a hole of zeros",
        "lines twice",
        "noise in front",
        "a count changed by hand",
        "empty",
    ],
)
def test_damage_is_noticed_and_only_what_is_lost_is_redone(tmp_path, started, kind):
    expected = written(tmp_path, draw(tmp_path / "scratch"))
    (log,) = tmp_path.glob("scratch/*/units.log")
    content, lost = damaged(log.read_bytes().splitlines(keepends=True))[kind]
    log.write_bytes(content)
    started.clear()
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected
    assert len(started) == lost
    assert len(read_keys(log.parent)) == UNITS and log.read_bytes().count(b"\n") == UNITS


def test_a_missing_description_is_written_again(tmp_path):
    draw(tmp_path)
    (about,) = tmp_path.glob("*/about.json")
    about.write_text("{")
    draw(tmp_path)
    assert json.loads(about.read_text())["n"] == 400


def test_a_full_disk_is_said_and_nothing_wrong_is_kept(tmp_path):
    """A limit on the size of files cuts a line short, as a full disk does."""
    expected = written(tmp_path, draw(tmp_path / "complete"))
    (complete,) = tmp_path.glob("complete/*/units.log")
    limit = complete.stat().st_size // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(
            InputError, match="units.log cannot be written .*: make room and run again"
        ):
            draw(tmp_path / "scratch")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (log,) = tmp_path.glob("scratch/*/units.log")
    assert log.stat().st_size == limit and 0 < len(read_keys(log.parent)) < UNITS
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        draw(tmp_path / "file" / "scratch")


def test_lines_and_folders_of_another_run_are_not_taken(tmp_path, started):
    """One line of another seed, or its whole folder under this name, once gave wrong counts."""
    expected = written(tmp_path, draw(tmp_path / "scratch"))
    (folder,) = (tmp_path / "scratch").iterdir()
    draw(tmp_path / "other", seed=1)
    (other,) = (tmp_path / "other").iterdir()
    mine, theirs = (each / "units.log" for each in (folder, other))
    lines = mine.read_bytes().splitlines(keepends=True)
    foreign = theirs.read_bytes().splitlines(keepends=True)
    for content, lost in ((lines[:4] + foreign[4:5] + lines[5:], 1), (foreign, UNITS)):
        mine.write_bytes(b"".join(content))
        started.clear()
        assert written(tmp_path, draw(tmp_path / "scratch")) == expected
        assert len(started) == lost
    shutil.rmtree(folder)
    shutil.copytree(other, folder)
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected
    assert json.loads((folder / "about.json").read_text())["seed"] == 0


def forged(folder: Path, change) -> None:
    """The log with one record whose counts were changed, and whose checksum is right."""
    log = folder / "units.log"
    lines = log.read_bytes().splitlines(keepends=True)
    key = lines[3].split()[1].decode()
    table = shards._table(lines[3], shape=(1, width(odd_networks.CLASSES)))
    lines[3] = shards._line(key, change(table), folder.name)
    log.write_bytes(b"".join(lines))


def moved(table, start, stop):
    """One draw counted in another bin of the same histogram."""
    table = table.copy()
    table[0, start:stop] = np.roll(table[0, start:stop], 1)
    table[0, start] += 1
    return table


FORGERIES = {
    "a draw too many": lambda table: moved(table, 0, 4),
    "a score too many": lambda table: moved(table, 4, 1005),
    "a doubt too many": lambda table: moved(table, 1005, 2006),
    "another joint": lambda table: moved(table, 2006, 3007),
    "no draws": lambda table: 0 * table,
    "other width": lambda table: table[:, :-7],
    "two rows": lambda table: np.concatenate([table, table]),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_record_is_drawn_again(tmp_path, started, kind):
    expected = written(tmp_path, draw(tmp_path / "scratch"))
    (folder,) = (tmp_path / "scratch").iterdir()
    forged(folder, FORGERIES[kind])
    started.clear()
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected
    assert len(started) == 1


@pytest.mark.parametrize(
    "packed",
    [b"", b"no_base64", base64.b64encode(b"not compressed"), base64.b64encode(b"")],
    ids=["none", "no base64", "not compressed", "empty"],
)
def test_a_record_without_counts_is_drawn_again(tmp_path, started, packed):
    expected = written(tmp_path, draw(tmp_path / "scratch"))
    (folder,) = (tmp_path / "scratch").iterdir()
    log = folder / "units.log"
    lines = log.read_bytes().splitlines(keepends=True)
    rest = lines[3].split()[1] + b" " + packed + b"\n"
    lines[3] = shards._checksum(rest, folder.name) + b" " + rest
    log.write_bytes(b"".join(lines))
    started.clear()
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected
    assert len(started) == 1


def test_a_record_that_would_fill_the_memory_is_refused_unread():
    line = b"checksum key " + base64.b64encode(zlib.compress(bytes(2**26)))
    tracemalloc.start()
    try:
        assert shards._table(line, shape=(1, 100)) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


LARGE = '{"probe": [1%s]}' % (400 * "0")  # larger than any float


@pytest.mark.parametrize(
    "text",
    ["[]", "{", "7", '{"probe": "x"}', '{"probe": [1, [2]]}', '{"probe": null}', "\x00", LARGE],
    ids=lambda text: text[:15],
)
def test_a_forged_description_is_written_again(tmp_path, text):
    expected = written(tmp_path, draw(tmp_path / "scratch"))
    (about,) = tmp_path.glob("scratch/*/about.json")
    about.write_text(text)
    assert written(tmp_path, draw(tmp_path / "scratch")) == expected
    assert json.loads(about.read_text())["sigma"] == 0.25


def test_scratch_that_cannot_be_written_is_one_line(tmp_path):
    """A folder in the place of a file."""
    draw(tmp_path / "scratch")
    (folder,) = tmp_path.glob("scratch/*/")
    (folder / "owner").unlink()
    (folder / "owner").mkdir()
    with pytest.raises(InputError, match="owner cannot be written .*: make room and run again"):
        draw(tmp_path / "scratch")
    assert shards._owner(folder) == "another sampler"
