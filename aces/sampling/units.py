"""How draws are cut into units of work: what a worker does at one go, and the most that a kill can
lose of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from aces.rule.counts import Round


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


def cut(
    round: Round, images: Iterable[int], *, start: int = 0, stop: int, chunk: int, rows: int
) -> Iterator[Unit]:
    """The draws `start .. stop` of the images, in units of one chunk, or of as many small ones as
    fill `rows` draws.
    """
    start, stop = int(start), int(stop)
    assert start % chunk == 0, "chunks are whole, except the last of a round"
    pieces = (
        Piece(int(image), first // chunk, min(chunk, stop - first))
        for image in images
        for first in range(start, stop, chunk)
    )
    while unit := tuple(islice(pieces, max(1, rows // max(1, min(chunk, stop - start))))):
        yield Unit(round, unit)


def draws_of(key: str) -> int:
    """The draws of the unit with this key."""
    return sum(int(piece.rpartition(".")[2]) for piece in key.partition(":")[2].split(","))
