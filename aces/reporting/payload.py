"""The numbers behind the page, compactly: what has a value for each image and theta travels as
base64 arrays.
"""

import base64

import numpy as np
import pandas as pd

from aces.reporting import figures
from aces.reporting.inputs import Inputs
from aces.reporting.sprite import Sprite
from aces.rule.counts import BINS, Round

IMAGES = 1000  # on the wall at most
STEPS = 200  # of the slider at most
HISTOGRAM = 50  # bins of an image's score
PROFILE = 120  # radii of the certified accuracy over the radius
TOP = 3  # classes of an image


def shown_images(count: int) -> np.ndarray:
    """The images on the wall: all of them, or evenly spaced ones."""
    return (
        np.arange(count)
        if count <= IMAGES
        else np.linspace(0, count - 1, IMAGES).round().astype(int)
    )


def shown_steps(count: int, *, always: int = 0) -> np.ndarray:
    """The thetas the slider stops at: all of them, or every k-th, with the last and `always`."""
    intervals = count - 1
    stride = (
        next(k for k in range(1, intervals + 1) if intervals % k == 0 and intervals // k <= STEPS)
        if intervals
        else 1
    )
    return np.union1d(np.arange(0, count, stride), [always])


def build(inputs: Inputs, *, shown: np.ndarray, sprite: Sprite) -> dict:
    """Everything the page's script reads."""
    point = inputs.working_point
    steps = shown_steps(len(inputs.thetas), always=point.step)
    curve, intervals = inputs.curve.iloc[steps], inputs.intervals.iloc[steps]
    thetas = inputs.thetas[steps]
    start = int(np.searchsorted(steps, point.step))
    return {
        "n": inputs.params.sample.n,
        "count": len(inputs.label),
        "ceiling": inputs.ceiling,
        "score": inputs.score,
        "thetas": thetas.tolist(),
        "theta_digits": 2 if np.allclose(thetas * 100, np.rint(thetas * 100)) else 3,
        "radii": inputs.radii,
        "radius_names": [f"{r:g}" for r in inputs.radii],
        "start": start,
        "core": {"nac": inputs.metrics["core"]["nac"], "name": inputs.params.core.arch},
        "alone": {
            "name": f"{inputs.params.certify.arch}, {inputs.method}",
            **_metrics(inputs.alone, inputs.radii),
        },
        "baseline": [
            {"sigma": row["sigma"], **_metrics(row, inputs.radii)}
            for row in inputs.varying_noise.to_dict("records")
        ],
        "entropy_selection": [
            _metrics(row, inputs.radii) for row in inputs.entropy_selection.to_dict("records")
        ],
        "curve": _curve(curve, inputs.radii, "{}"),
        "bands": _bands(intervals, inputs.radii),
        "routes": [
            (inputs.outcomes.route[:, steps] == route).mean(axis=0).tolist() for route in range(4)
        ],
        "profile": _profile(inputs, steps),
        "correctness": _correctness(inputs),
        "selection_radius": _selection_radius(inputs, steps),
        "ecdf": _ecdf(inputs, steps),
        "classes": _class_names(inputs, shown),
        "first": _typical(inputs, shown, thetas[start]),
        "images": _images(inputs, shown, steps, sprite),
    }


def _metrics(row: dict, radii: list[float]) -> dict:
    return {
        "nac": row["nac"],
        "acr": row["acr"],
        "certified_accuracy": [row[f"certified_accuracy@{r:g}"] for r in radii],
    }


def _curve(frame: pd.DataFrame, radii: list[float], name: str) -> dict:
    """A list for each metric, a list of lists for the ones with radii."""
    column = lambda metric: frame[name.format(metric)].tolist()
    return {metric: column(metric) for metric in ("nac", "acr", "abstention", "core_rate")} | {
        metric: [column(f"{metric}@{r:g}") for r in radii]
        for metric in ("certified_accuracy", "selection_rate")
    }


def _bands(frame: pd.DataFrame, radii: list[float]) -> dict:
    """As `_curve`, each list as the pair of its lower and upper ends."""
    frame = frame.round(6)
    low, high = _curve(frame, radii, "{}_low"), _curve(frame, radii, "{}_high")
    pair = lambda a, b: list(map(list, zip(a, b))) if a and isinstance(a[0], list) else [a, b]
    return {metric: pair(low[metric], high[metric]) for metric in low}


def _profile(inputs: Inputs, steps: np.ndarray) -> dict:
    """Certified accuracy over the radius, at each theta and for the certification network alone."""
    grid = np.linspace(0, inputs.ceiling, PROFILE)
    above = lambda correct, radius: np.stack(
        [(correct & (radius >= r)).mean(axis=0) for r in grid], axis=-1
    )
    alone = above(inputs.alone_correct, inputs.alone_radius)
    return {
        "radius": grid.tolist(),
        "alone": alone.tolist(),
        "aces": _encode(
            above(inputs.correct[:, steps], inputs.outcomes.radius[:, steps]), np.float32
        ),
    }


def _correctness(inputs: Inputs) -> dict:
    frame = figures.correctness(inputs)
    return {
        "certified": frame["certified"].tolist(),
        "other": frame["other"].tolist(),
        "radius": f"{inputs.middle_radius:g}",
    }


def _selection_radius(inputs: Inputs, steps: np.ndarray) -> dict:
    frame = figures.selection_radii(inputs)
    return {
        "percentile": frame["percentile"].tolist(),
        "values": _encode(frame.iloc[:, 1 + steps].T, np.float32),
        "ceiling": float(inputs.outcomes.selection_radius.max()),
    }


def _ecdf(inputs: Inputs, steps: np.ndarray) -> dict:
    frame = figures.ecdf(inputs)
    return {
        "share": frame["p"].tolist(),
        "p_class": frame["p_class"].tolist(),
        "p_select": _encode(frame.iloc[:, 2 + steps].T, np.float32),
    }


def _class_names(inputs: Inputs, shown: np.ndarray) -> dict[int, str]:
    """The classes these images speak of, not all thousand."""
    top = np.argsort(-inputs.counts.classes[Round.BOUND][shown], axis=1, kind="stable")[:, :TOP]
    spoken = np.concatenate(
        [
            inputs.label[shown],
            inputs.core[shown],
            inputs.counts.guess[shown],
            top.ravel(),
            inputs.outcomes.natural_prediction[shown].ravel(),
        ]
    )
    return {int(k): inputs.evaluation.classes[k] for k in np.unique(spoken) if k >= 0}


def _images(inputs: Inputs, shown: np.ndarray, steps: np.ndarray, sprite: Sprite) -> dict:
    counts, rule, grid = inputs.counts, inputs.outcomes, np.ix_(shown, steps)
    classes, scores = counts.classes[Round.BOUND][shown], inputs.histogram[shown]
    return {
        "count": len(shown),
        "sprite": {"columns": sprite.columns, "rows": sprite.rows},
        "bins": HISTOGRAM,
        "index": inputs.evaluation.index[shown].tolist(),
        "label": inputs.label[shown].tolist(),
        "core": inputs.core[shown].tolist(),
        "guess": counts.guess[shown].tolist(),
        "top": _top(classes),
        "draws": inputs.draws[shown].tolist(),
        "valid": scores.sum(axis=1).tolist(),
        "median": inputs.median_score[shown].tolist(),
        "p_class_share": inputs.p_class[shown].round(6).tolist(),
        "alone_radius": [_down(value) for value in inputs.alone_radius[shown]],
        "route": _encode(rule.route[grid], np.uint8),
        "radius": _encode(_float32_down(rule.radius[grid]), np.float32),
        "natural": _encode(inputs.outcomes.natural_prediction[grid], np.int16),
        "selected": _encode(inputs.selecting[grid], np.uint32),
        "p_select": _encode(_float32_down(rule.p_select[grid]), np.float32),
        "p_class": _encode(_float32_down(rule.p_class[grid]), np.float32),
        "histogram": _encode(_coarse(scores), np.uint32),
        "joint": _encode(_coarse(inputs.joint_histogram[shown]), np.uint32),
    }


def _typical(inputs: Inputs, shown: np.ndarray, theta: float) -> int:
    """The image shown in detail at first: of those whose selection changes near theta, the one of
    the largest radius.
    """
    near = np.abs(inputs.median_score[shown] - theta) <= 0.1
    return int(np.where(near, inputs.alone_radius[shown], -1).argmax())


def _top(classes: np.ndarray) -> list:
    """The most frequent classes of each image and their draws, the lower class first in a tie."""
    order = np.argsort(-classes, axis=1, kind="stable")[:, :TOP]
    return [
        [[int(k), int(row[k])] for k in best if row[k]]
        for row, best in zip(classes, order, strict=True)
    ]


def _coarse(histogram: np.ndarray) -> np.ndarray:
    """(N, BINS + 1) -> (N, HISTOGRAM): bin k has the scores in (k / HISTOGRAM, (k + 1) /
    HISTOGRAM], the first also 0.
    """
    merged = histogram[:, 1:].reshape(len(histogram), HISTOGRAM, BINS // HISTOGRAM).sum(axis=2)
    merged[:, 0] += histogram[:, 0]
    return merged


def _float32_down(values: np.ndarray) -> np.ndarray:
    """Lower bounds stay lower bounds in single precision."""
    single = values.astype(np.float32)
    return np.where(single > values, np.nextafter(single, np.float32(0)), single)


def _down(value: float, digits: int = 6) -> float:
    return float(np.floor(value * 10**digits) / 10**digits)


def _encode(values, kind: type) -> str:
    """An array as base64, little-endian as in every browser."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode()
