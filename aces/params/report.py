"""`report` and `baseline`: what the report shows, and what ACES is compared with."""

from typing import Annotated

from pydantic import Field, field_validator

from aces.params.section import Positive, Section, must


class Report(Section):
    theta: Annotated[float, Field(ge=0, le=1)] | None = None
    """The working point; by default the calibrated theta."""
    thetas: list[float] = [i / 10 for i in range(11)]
    """Rows of the tables."""
    bootstrap: Annotated[int, Field(gt=0, le=1_000_000)] = 1000
    """Resamples of the intervals."""

    @field_validator("thetas")
    @classmethod
    def _check(cls, thetas: list[float]) -> list[float]:
        fine = bool(thetas) and all(0 <= theta <= 1 for theta in thetas)
        must(fine, "thetas", thetas, "at least one number in [0, 1]")
        return thetas


class Baseline(Section):
    sigmas: list[Positive] = []
    """Evaluation sigmas of the varying-noise baseline."""
