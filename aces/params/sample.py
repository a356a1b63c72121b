"""`sample`: the draws."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from aces import grid
from aces.params.section import MOST_DRAWS, Draws, Section, Share, is_ascending, must


class Adaptive(Section):
    """Early stopping: looks after shares of the draws, which spend shares of alpha."""

    enabled: bool = False
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    """What the stopping aims at; the bounds are sound at any combine.alpha."""
    looks: list[float] = [0.02, 0.053, 0.141, 0.376, 1.0]
    """Shares of n, ascending; the last is 1."""
    spend: list[float] = [0.02, 0.03, 0.04, 0.06, 0.85]
    """Shares of alpha; their sum is at most 1."""
    tolerance: Share = 0.015
    """An image stops when no radius can grow by more than this share of the largest possible
    one."""
    thetas: Literal["all"] | list[float] = "all"
    """The thetas of interest: an image stops when its answers are settled at all of these."""

    @model_validator(mode="after")
    def _check(self) -> "Adaptive":
        looks, spend = self.looks, self.spend
        shares = bool(looks) and is_ascending(looks) and looks[0] > 0 and looks[-1] == 1
        must(shares, "looks", looks, "ascending shares of n, the last of them 1")
        spent = len(spend) == len(looks) and min(spend) > 0 and sum(spend) <= 1 + 1e-12
        must(spent, "spend", spend, "a share above 0 for each look, adding up to at most 1")
        if self.thetas != "all":
            on_grid = bool(self.thetas) and all(map(grid.is_on_grid, self.thetas))
            wanted = f"all, or multiples of 1/{grid.BINS} in [0, 1]"
            must(on_grid, "thetas", self.thetas, wanted)
        return self


class Sample(Section):
    """The draws."""

    n0: Draws = 100
    """Draws that fix the guesses."""
    n: Draws = 2000
    """Draws that bound the probabilities of the guesses."""
    n_predict: Annotated[int, Field(ge=0, lt=MOST_DRAWS)] = 0
    """Draws for PREDICT alone; 0: PREDICT uses the n draws, since its promise is a separate one."""
    chunk: Draws = 128
    """Draws of one image that share a random stream. A worker takes some chunks at a time, and a
    kill loses those."""
    noise: Literal["exact", "float"] = "exact"
    """`exact`: whole numbers on a lattice, certificates hold in floating point. `float`: for
    comparison."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """The network in this precision is the one that is certified, saved and served."""
    adaptive: Adaptive = Adaptive()
