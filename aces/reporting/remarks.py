"""Remarks that a reader of the numbers must not miss, in words: for the page and `aces summary`."""

import numpy as np
import pandas as pd

from aces.params import Params


def above_natural(curve: pd.DataFrame) -> str | None:
    """Why certified accuracy at radius 0 can exceed natural accuracy, where it does."""
    if "certified_accuracy@0" not in curve:
        return None
    above = curve["certified_accuracy@0"] > curve["nac"] + 1e-12
    if not above.any():
        return None
    thetas = curve.loc[above, "theta"]
    where = f"θ = {thetas.iloc[0]:g}" if len(thetas) == 1 else f"{len(thetas)} thresholds"
    return (
        f"At {where} certified accuracy at r = 0 is above natural accuracy. This is no mistake: "
        "the two count the answers of different procedures. Certified accuracy counts those of "
        "CERTIFY, which tests one guess made beforehand. Natural accuracy counts those of PREDICT, "
        "which finds its answer on the draws it tests, and therefore abstains on some images "
        "that CERTIFY answers."
    )


def stopped_early(params: Params, draws: np.ndarray | None = None) -> str | None:
    """That draws stopped early, and at which thetas the answers are settled; None where not.

    draws: (N,) draws of round BOUND, where they are known.
    """
    adaptive, n = params.sample.adaptive, params.sample.n
    if not adaptive.enabled:
        return None
    words = "Draws stopped early"
    if draws is not None and len(draws):
        words += (
            f" on {int((draws < n).sum()):,} of {len(draws):,} images, after {draws.mean():,.0f} "
            f"of {n:,} draws on average"
        )
    settled = (
        "all thresholds"
        if adaptive.thetas == "all"
        else "θ = " + ", ".join(f"{theta:g}" for theta in adaptive.thetas)
    )
    loss = f"{100 * adaptive.tolerance:g} % of the largest radius"
    if adaptive.thetas == "all":
        return f"{words}. At {settled}, waiting could have added at most {loss}."
    return (
        f"{words}. At {settled}, waiting could have added at most {loss}. At other thresholds the "
        "answers are valid too, but radii may be smaller than all draws would have given."
    )
