"""The numbers behind the page. What has a value for each image and theta travels as arrays."""

from typing import Any

import numpy as np
import pandas as pd

from aces.reporting import figures
from aces.reporting.inputs import RULES, Inputs
from aces.reporting.sprite import Sprite
from aces.rule.counts import BINS, Round

IMAGES = 1000  # images on the wall, at most
TELLING = 100  # where not all images are shown, so many are the most telling ones
HISTOGRAM = 50  # bins of an image's score
PROFILE = 120  # radii of the certified accuracy over the radius
TOP = 3  # classes of an image
# Bits of an image's code at a theta; the two lowest are its route. assets/classes.js reads them.
NATURAL_RIGHT, CERTIFIED_RIGHT = 4, 8


def shown_images(inputs: Inputs) -> np.ndarray:
    """The images on the wall, in order: all of them, or evenly spaced ones and the most telling."""
    count = len(inputs.label)
    if count <= IMAGES:
        return np.arange(count)
    telling = _telling(inputs)
    even = np.linspace(0, count - 1, IMAGES - len(telling)).round().astype(int)
    return np.union1d(even, telling)


def _telling(inputs: Inputs) -> np.ndarray:
    """Images that the lists of the page would name first, at the working point."""
    step, table = inputs.working_point.step, inputs.outcomes
    right, radius = inputs.correct[:, step], table.radius[:, step]
    wrong = np.where((table.prediction[:, step] >= 0) & ~right, radius, 0)
    lost = np.where(inputs.alone_correct, inputs.alone_radius - radius, 0)
    half = TELLING // 2
    first = [np.argsort(-rank, kind="stable")[:half] for rank in (wrong, lost)]
    return np.unique(np.concatenate(first))


def build(inputs: Inputs, *, shown: np.ndarray, sprite: Sprite) -> dict[str, Any]:
    """Everything the page's script reads."""
    point = inputs.working_point
    steps = inputs.steps
    thetas = inputs.thetas[steps]
    return {
        "n": inputs.params.sample.n,
        "count": len(inputs.label),
        "ceiling": inputs.ceiling,
        "score": inputs.score,
        "rule": inputs.rule,
        "rule_words": RULES[inputs.rule],
        "selecting_words": _selecting_words(inputs),
        "thetas": thetas.tolist(),
        "theta_digits": 2 if np.allclose(thetas * 100, np.rint(thetas * 100)) else 3,
        "radii": inputs.radii,
        "radius_names": inputs.radius_names,
        "lead": inputs.radii.index(inputs.lead_radius),
        "shown_radii": [inputs.radii.index(radius) for radius in inputs.shown_radii],
        "start": int(np.searchsorted(steps, point.step)),
        "working_point": point.words,
        "calibration": _calibration(inputs),
        "attack": None if inputs.attack is None else inputs.attack["curve"],
        **_compared(inputs),
        **_curves(inputs, steps),
        "profile": _profile(inputs, steps),
        "correctness": _correctness(inputs),
        "selection_radius": _selection_radius(inputs),
        "ecdf": _ecdf(inputs),
        "classes": _class_names(inputs, shown),
        "first": _typical(inputs, shown, point.theta),
        "all": _all(inputs, steps),
        "images": _images(inputs, shown, steps, sprite),
    }


def _selecting_words(inputs: Inputs) -> str:
    if inputs.rule == "confident":
        return "of the class, doubt ≤ θ"
    return "draws at or below θ"


def _calibration(inputs: Inputs) -> dict[str, Any] | None:
    """The losses on the calibration images, for each threshold that was tested."""
    found = inputs.calibration or {}
    if not found.get("thetas"):
        return None
    return {name: found[name] for name in ("theta", "loss", "confidence", "images")} | {
        name: list(found[name]) for name in ("thetas", "losses")
    }


def _compared(inputs: Inputs) -> dict[str, Any]:
    """The networks alone, and the other curves that ACES is compared with."""
    radii = inputs.radius_names
    curve = inputs.other_curve
    other = None
    if inputs.other_rule is not None:
        names = [f"certified_accuracy@{r}" for r in radii]
        other = {
            "words": RULES[inputs.other_rule],
            "thetas": curve["theta"].tolist(),
            "nac": curve["nac"].tolist(),
            "acr": curve["acr"].tolist(),
            "certified_accuracy": [curve[name].tolist() for name in names],
        }
    return {
        "core": {"nac": inputs.core_nac, "name": inputs.params.core.arch},
        "alone": {
            "name": f"{inputs.params.certify.arch}, {inputs.method}",
            **_metrics(inputs.alone, radii),
        },
        "baseline": [
            {"sigma": row["sigma"], **_metrics(row, radii)}
            for row in inputs.varying_noise.to_dict("records")
        ],
        "entropy_selection": [
            _metrics(row, radii) for row in inputs.entropy_selection.to_dict("records")
        ],
        "other_rule": other,
    }


def _metrics(row: dict, radii: list[str]) -> dict[str, Any]:
    return {
        "nac": row["nac"],
        "acr": row["acr"],
        "certified_accuracy": [row[f"certified_accuracy@{r}"] for r in radii],
    }


def _curves(inputs: Inputs, steps: np.ndarray) -> dict[str, Any]:
    """The curve and the ends of its intervals, at the thetas of the slider."""
    curve, intervals = inputs.curve.iloc[steps], inputs.intervals.round(6)
    low, high = (_columns(intervals, inputs.radius_names, end) for end in ("_low", "_high"))
    bands = {}
    for name, values in low.items():
        nested = bool(values) and isinstance(values[0], list)
        pairs = zip(values, high[name], strict=True)
        bands[name] = [list(pair) for pair in pairs] if nested else [values, high[name]]
    return {"curve": _columns(curve, inputs.radius_names), "bands": bands}


def _columns(frame: pd.DataFrame, radii: list[str], end: str = "") -> dict[str, list]:
    """A list for each metric, a list of lists for those with radii."""
    plain = ("nac", "acr", "abstention", "core_rate")
    return {metric: frame[metric + end].tolist() for metric in plain} | {
        metric: [frame[f"{metric}@{r}{end}"].tolist() for r in radii]
        for metric in ("certified_accuracy", "selection_rate")
    }


def _profile(inputs: Inputs, steps: np.ndarray) -> dict[str, Any]:
    """Certified accuracy over the radius, at each theta and for the certification network alone."""
    grid = np.linspace(0, inputs.ceiling, PROFILE)
    right, radius = inputs.correct, inputs.outcomes.radius
    profile = [_shares(right[:, step], radius[:, step], grid) for step in steps]
    return {
        "radius": grid.tolist(),
        "alone": _shares(inputs.alone_correct, inputs.alone_radius, grid).tolist(),
        "aces": np.stack(profile).astype(np.float32),
    }


def _shares(right: np.ndarray, radius: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The share of images that are right with a radius of at least each of `grid`."""
    ordered = np.sort(radius[right])
    return (len(ordered) - np.searchsorted(ordered, grid, side="left")) / len(radius)


def _correctness(inputs: Inputs) -> dict[str, Any]:
    frame = figures.correctness(inputs)
    return {
        "certified": frame["certified"].tolist(),
        "other": frame["other"].tolist(),
        "radius": f"{inputs.middle_radius:g}",
    }


def _selection_radius(inputs: Inputs) -> dict[str, Any]:
    frame = figures.selection_radii(inputs)
    return {
        "percentile": frame["percentile"].tolist(),
        "values": frame.iloc[:, 1:].to_numpy().T.astype(np.float32),
        "ceiling": max(float(np.abs(frame.iloc[:, 1:].to_numpy()).max()), 1e-6),
    }


def _ecdf(inputs: Inputs) -> dict[str, Any]:
    frame = figures.ecdf(inputs)
    return {
        "share": frame["p"].tolist(),
        "p_class": frame["p_class"].tolist(),
        "p_select": frame.iloc[:, 2:].to_numpy().T.astype(np.float32),
    }


def _class_names(inputs: Inputs, shown: np.ndarray) -> dict[int, str]:
    """The classes these images speak of, not all thousand."""
    top = np.argsort(-inputs.counts.classes[Round.BOUND][shown], axis=1, kind="stable")[:, :TOP]
    natural = inputs.outcomes.natural_prediction[shown].ravel()
    spoken = [inputs.label, inputs.core, inputs.counts.guess, top.ravel(), natural]
    every = np.unique(np.concatenate([np.unique(part) for part in spoken]))
    return {int(k): inputs.evaluation.classes[k] for k in every if k >= 0}


def _all(inputs: Inputs, steps: np.ndarray) -> dict[str, Any]:
    """What the tables by class need, of all images: one byte for each theta and image."""
    table, radius = inputs.outcomes, inputs.lead_radius
    natural = table.natural_prediction[:, steps] == inputs.label[:, None]
    certified = inputs.correct[:, steps] & (table.radius[:, steps] >= radius)
    code = table.route[:, steps] + NATURAL_RIGHT * natural + CERTIFIED_RIGHT * certified
    return {
        "label": inputs.label.astype(np.int16),
        "core": inputs.core.astype(np.int16),
        "guess": inputs.counts.guess.astype(np.int16),
        "code": code.T.astype(np.uint8),
    }


def _images(inputs: Inputs, shown: np.ndarray, steps: np.ndarray, sprite: Sprite) -> dict[str, Any]:
    table, grid = inputs.outcomes, np.ix_(shown, steps)
    scores = inputs.histogram[shown]
    return {
        "count": len(shown),
        "sprite": {"columns": sprite.columns, "rows": sprite.rows},
        "bins": HISTOGRAM,
        "index": inputs.evaluation.index[shown].tolist(),
        "label": inputs.label[shown].tolist(),
        "core": inputs.core[shown].tolist(),
        "guess": inputs.counts.guess[shown].tolist(),
        "top": _top(inputs.counts.classes[Round.BOUND][shown]),
        "draws": inputs.draws[shown].tolist(),
        "valid": scores.sum(axis=1).tolist(),
        "median": inputs.median_score[shown].tolist(),
        "p_class_share": inputs.p_class[shown].round(6).tolist(),
        "alone_radius": [_down(value) for value in inputs.alone_radius[shown]],
        "alone_right": inputs.alone_correct[shown].astype(int).tolist(),
        "route": table.route[grid].astype(np.uint8),
        "radius": _float32_down(table.radius[grid]),
        "natural": table.natural_prediction[grid].astype(np.int16),
        "selecting": inputs.selecting[shown].astype(np.uint32),
        "p_select": _float32_down(table.p_select[grid]),
        "p_class": _float32_down(table.p_class[grid]),
        "histogram": _coarse(scores).astype(np.uint32),
        "joint": _coarse(inputs.joint_histogram[shown]).astype(np.uint32),
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


def _down(value: float) -> float:
    return float(np.floor(value * 1e6) / 1e6)
