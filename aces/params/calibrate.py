"""`calibrate`: the choice of theta."""

from typing import Annotated

from pydantic import Field

from aces.params.section import Draws, Section


class Calibrate(Section):
    """The choice of theta: the largest whose loss of accuracy is at most `loss`, with `confidence`."""

    loss: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """How much of the core network's natural accuracy may be lost."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    images: Annotated[int, Field(ge=0)] = 2000
    """Test images that are not evaluated; 0: no calibration, report.theta must be set."""
    n: Draws = 2000
    """Draws of a calibration image, at most: fewer where more could not change the choice."""
