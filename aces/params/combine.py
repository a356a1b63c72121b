"""`combine`: the rule."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from aces import grid
from aces.params.section import Section, is_ascending, must


class Combine(Section):
    """The rule."""

    rule: Literal["confident", "paper"] = "confident"
    """`confident`: one event, class and certainty together. `paper`: Algorithm 1."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    """The total failure probability of an answer."""
    multiplicity: Literal["iut", "bonferroni"] = "iut"
    """How the paper's rule shares alpha: `iut` gives larger radii, `bonferroni` is the paper's."""
    theta_step: float = 0.01
    """Thetas are 0, step, 2 step, ..., 1."""
    radii: Literal["auto"] | list[float] = "auto"
    """Radii of the certified accuracies; `auto`: from 0 to what the draws can certify, in round
    steps."""

    @property
    def thetas(self) -> list[float]:
        return grid.thetas(self.theta_step)

    @model_validator(mode="after")
    def _check(self) -> "Combine":
        step = f"1/{grid.BINS} times a divisor of {grid.BINS}, such as 0.01"
        must(grid.is_step(self.theta_step), "theta_step", self.theta_step, step)
        if self.radii != "auto":
            radii = self.radii
            ascending = bool(radii) and is_ascending(radii) and radii[0] >= 0
            must(ascending, "radii", radii, "auto, or ascending radii of at least 0")
            distinct = len({f"{radius:g}" for radius in radii}) == len(radii)
            named = "radii that differ in their first six digits, which name them"
            must(distinct, "radii", radii, named)
        return self
