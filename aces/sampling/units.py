"""How draws are cut into units of work: what a worker does at one go, and the most that a kill can
lose of it.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from aces.rule.counts import Round

SHARE = 16  # of the draws that are left, a unit has at most one in so many


class Piece(NamedTuple):
    """One chunk of the draws of one image."""

    image: int  # position among the images
    chunk: int  # number of the chunk in its round
    draws: int


@dataclass(frozen=True)
class Unit:
    """Pieces of one round that are drawn together; the cut is part of what the draws depend on."""

    round: Round
    pieces: tuple[Piece, ...]

    @cached_property
    def images(self) -> list[int]:
        """The positions of the images, each once, in order: the rows of the unit's tally."""
        return list(dict.fromkeys(piece.image for piece in self.pieces))

    @cached_property
    def draws(self) -> int:
        return sum(piece.draws for piece in self.pieces)

    @property
    def key(self) -> str:
        """The unit's name in the scratch file."""
        return f"{int(self.round)}:" + ",".join(".".join(map(str, piece)) for piece in self.pieces)


class Sizes(NamedTuple):
    """The draws of a unit, if the chunks are small."""

    most: int
    least: int


def cut(
    round: Round, images: Collection[int], *, start: int = 0, stop: int, chunk: int, sizes: Sizes
) -> Iterator[Unit]:
    """The draws `start .. stop` of the images, in units of one chunk, or of as many small ones as
    fill the size of a unit.

    That is at most a sixteenth of the draws that are left: large at first, since each unit costs
    time of its own, and small at the end, so that no worker waits long for the last one.
    """
    start, stop = int(start), int(stop)
    assert start % chunk == 0, "chunks are whole, except the last of a round"
    pieces = (
        Piece(int(image), first // chunk, min(chunk, stop - first))
        for image in images
        for first in range(start, stop, chunk)
    )
    left, piece = len(images) * (stop - start), max(1, min(chunk, stop - start))
    while True:
        size = max(sizes.least, min(sizes.most, left // SHARE))
        unit = Unit(round, tuple(islice(pieces, max(1, size // piece))))
        if not unit.pieces:
            return
        yield unit
        left -= unit.draws


def draws_of(key: str) -> int:
    """The draws of the unit with this key."""
    return sum(int(piece.rpartition(".")[2]) for piece in key.partition(":")[2].split(","))
