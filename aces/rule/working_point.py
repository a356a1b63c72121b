"""The working point: the one theta at which a run is summarised, served and compared.

Whatever has to name a single theta takes it from here: the report, `aces summary`, `aces compare`,
the metrics and the saved model. It also says where the theta comes from, because the promise
differs:

| source     | theta                                             | what it promises              |
|------------|---------------------------------------------------|-------------------------------|
| SET        | `report.theta`                                    | whatever the user meant       |
| CALIBRATED | chosen by `calibrate` on images not reported      | the loss, with its confidence |
| EVALUATION | the largest ACR within `LOSS`, on the same images | nothing: the choice saw them  |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

# The natural accuracy that a theta chosen on the evaluation images may give up.
LOSS = 0.05


class Source(StrEnum):
    """Where the theta of the working point comes from."""

    SET = "report.theta"
    CALIBRATED = "calibration"
    EVALUATION = "evaluation"


@dataclass(frozen=True)
class WorkingPoint:
    step: int  # the place of `theta` on the grid
    theta: float
    source: Source
    words: str  # where the theta comes from, for people


def working_point(
    thetas: np.ndarray,
    *,
    nac: np.ndarray,
    acr: np.ndarray,
    core_nac: float,
    chosen: float | None = None,
    calibration: Mapping | None = None,
) -> WorkingPoint:
    """The working point of a curve.

    thetas, nac, acr: (T,) the curve, thetas ascending; core_nac: natural accuracy of the core
    network; chosen: `report.theta`; calibration: the content of results/calibration.json.
    """
    calibrated = (calibration or {}).get("theta")
    if chosen is not None:
        return _at(thetas, chosen, Source.SET, "set by report.theta")
    if calibrated is not None:
        return _at(thetas, calibrated, Source.CALIBRATED, _promise(calibration or {}))
    step = best_within(nac, acr, core_nac=core_nac, loss=LOSS)
    return WorkingPoint(
        step=step,
        theta=float(thetas[step]),
        source=Source.EVALUATION,
        words=(
            f"chosen on the evaluation images themselves, as the largest ACR within "
            f"{100 * LOSS:g} points of the core network's natural accuracy, which is optimistic"
        ),
    )


def best_within(nac: np.ndarray, acr: np.ndarray, *, core_nac: float, loss: float) -> int:
    """The step with the largest ACR among those that lose at most `loss` of the core network's
    natural accuracy; if there is none, the step with the largest natural accuracy.
    """
    nac, acr = np.asarray(nac), np.asarray(acr)
    within = nac >= core_nac - loss - 1e-12
    return int(np.where(within, acr, -1).argmax() if within.any() else nac.argmax())


def _at(thetas: np.ndarray, theta: float, source: Source, words: str) -> WorkingPoint:
    """The largest step on the grid that does not exceed `theta`.

    The promise of a calibrated theta holds there too: `calibrate` has confirmed every smaller theta
    of its grid before it.
    """
    step = max(int(np.searchsorted(np.asarray(thetas), theta + 1e-9, side="right")) - 1, 0)
    return WorkingPoint(step=step, theta=float(thetas[step]), source=source, words=words)


def _promise(calibration: Mapping) -> str:
    """The calibration's promise in words, as far as the file states it."""
    words = "calibrated"
    if "images" in calibration:
        words += f" on {calibration['images']:,} other test images"
    if "loss" not in calibration or "confidence" not in calibration:
        return words
    promise = (
        f"at most {100 * calibration['loss']:g} points of the core network's natural accuracy, "
        f"with {100 * calibration['confidence']:g} % confidence"
    )
    if calibration.get("shown") is False:
        return (
            f"{words}, which were too few to show for any threshold that ACES loses {promise}: "
            "the core network answers alone"
        )
    return f"{words}: ACES loses {promise}"
