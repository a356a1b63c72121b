"""A run without networks: draws are simulated from each image's own distribution, everything after
them is real.
"""

import base64
import gzip
import json
import re

import numpy as np
import pandas as pd

from aces import params, rule
from aces.data import EvalSet
from aces.reporting import Inputs, tabulate
from aces.rule import metrics, smoothing
from aces.rule.counts import BINS, Counts, Settings

RADII = [0.0, 0.25, 0.5, 0.75]


def simulated_run(
    *,
    images: int = 60,
    classes: int = 10,
    side: int = 32,
    theta_step: float = 0.01,
    n: int = 2000,
    rule: str = "paper",
    mechanism: str = "entropy",
    radii: list[float] | None = None,
    baseline: bool = True,
    seed: int = 0,
) -> Inputs:
    """A run of the profile `laptop` over made-up images: easy ones have a low entropy and a stable
    class.
    """
    settings = _settings(rule=rule, theta_step=theta_step, n=n, mechanism=mechanism, radii=radii)
    generator = np.random.default_rng(seed)
    label = generator.integers(0, classes, images)
    ease = generator.beta(1.3, 1.1, images)  # 0: hopeless, 1: certain
    counts = _draw(generator, label, ease, classes=classes, params=settings)
    core = np.where(
        generator.random(images) < 0.75 + 0.24 * ease, label, generator.integers(0, classes, images)
    )
    evaluation = EvalSet(
        image=_pictures(generator, label, side),
        label=label,
        index=counts.index,
        classes=[f"kind {k}" for k in range(classes)],
    )
    return combined(settings, evaluation, counts, core, baseline=baseline)


def combined(
    settings: params.Params,
    evaluation: EvalSet,
    counts: Counts,
    core: np.ndarray,
    *,
    baseline: bool,
) -> Inputs:
    """What the stage `combine` makes of counts."""
    combine, thetas = settings.combine, settings.combine.thetas
    outcomes, natural, curve = _apply(combine.rule, settings, counts, core)
    other = {"paper": "confident", "confident": "paper"}[combine.rule]
    other_curve = _apply(other, settings, counts, core)[2].assign(series=other)
    alone = metrics.individual(
        smoothing.certify(counts, sigma=settings.sigma, alpha=combine.alpha),
        smoothing.predict(counts, alpha=combine.alpha),
        counts.label,
        radii=combine.radii,
    )
    table = tabulate(outcomes, natural, index=counts.index, label=counts.label, thetas=thetas)
    summary = {
        "core": {"nac": float((core == counts.label).mean())},
        "certify": alone,
        "acr_ceiling": rule.ceiling(counts, alpha=combine.alpha, rule=combine.rule),
    }
    return Inputs(
        params=settings,
        evaluation=evaluation,
        counts=counts,
        core=core,
        outcomes=table,
        curve=curve,
        metrics=summary,
        comparison=_baseline(alone, curve, other_curve, settings) if baseline else None,
        provenance={
            "sha256": {"models/core.safetensors": "0" * 64},
            "versions": {"python": "3.11"},
        },
    )


def _apply(
    name: str, settings: params.Params, counts: Counts, core: np.ndarray
) -> tuple[rule.Outcomes, np.ndarray, pd.DataFrame]:
    """CERTIFY's outcomes, PREDICT's answers and the curve, by a rule."""
    how = {"alpha": settings.combine.alpha, "thetas": settings.combine.thetas, "rule": name}
    outcomes = rule.certify(counts, core, **how)
    natural = rule.predict(counts, core, **how)
    curve = metrics.curve(
        outcomes, natural, counts.label, thetas=how["thetas"], radii=settings.combine.radii
    )
    return outcomes, natural, pd.DataFrame(curve)


def _settings(
    *, rule: str, theta_step: float, n: int, mechanism: str, radii: list[float] | None
) -> params.Params:
    loaded = params.load("profiles/laptop.yaml")
    on_grid = lambda theta: abs(theta / theta_step - round(theta / theta_step)) < 1e-9
    return loaded.replace(
        sample=loaded.sample.replace(n=n, n_predict=1000),
        select=loaded.select.replace(score=mechanism),
        combine=loaded.combine.replace(rule=rule, theta_step=theta_step, radii=radii or RADII),
        report=loaded.report.replace(
            thetas=list(filter(on_grid, loaded.report.thetas)), bootstrap=200
        ),
    )


def _draw(generator, label, ease, *, classes: int, params: params.Params) -> Counts:
    sample = params.sample
    shape = (len(label), BINS + 1)
    votes, scores = np.zeros((3, len(label), classes), int), np.zeros((3, *shape), int)
    joint, guess = np.zeros((3, *shape), int), np.zeros(len(label), int)
    p_class = 0.25 + 0.75 * ease**0.6 - 0.02 * generator.random(len(label))
    others = generator.integers(0, classes, len(label))
    favourite = np.where(generator.random(len(label)) < 0.15 + 0.85 * ease, label, others)
    middle = np.clip(
        0.95 * (1 - ease) ** 0.8 + 0.05 * generator.standard_normal(len(label)), 0.01, 0.95
    )
    for image in range(len(label)):
        for stage, draws in enumerate((sample.n0, sample.n, sample.n_predict)):
            hit = generator.random(draws) < p_class[image]
            drawn = np.where(hit, favourite[image], generator.integers(0, classes, draws))
            score = generator.beta(14 * middle[image], 14 * (1 - middle[image]), draws)
            place = np.ceil(np.clip(score + 0.08 * ~hit, 0, 1) * BINS).astype(int)
            votes[stage, image] = np.bincount(drawn, minlength=classes)
            scores[stage, image] = np.bincount(place, minlength=BINS + 1)
            if stage == 0:
                guess[image] = votes[0, image].argmax()
            else:
                joint[stage, image] = np.bincount(place[drawn == guess[image]], minlength=BINS + 1)
    return Counts(
        classes=votes,
        score=scores,
        doubt=scores,
        joint_score=joint,
        joint_doubt=joint,
        invalid=np.zeros((3, len(label)), int),
        index=np.arange(len(label)) * params.dataset.stride,
        label=label,
        guess=guess,
        settings=Settings(
            sigma=params.sigma,
            n0=sample.n0,
            n=sample.n,
            n_predict=sample.n_predict,
            seed=0,
            chunk=sample.chunk,
            model="simulated",
            score=params.select.score,
        ),
    )


def _pictures(generator, label: np.ndarray, side: int) -> np.ndarray:
    """(N, side, side, 3) uint8: a coloured disc on a gradient, with some grain."""
    y, x = np.mgrid[0:side, 0:side] / side
    pictures = np.empty((len(label), side, side, 3), np.uint8)
    for place in range(len(label)):
        sky, ground, disc = generator.uniform(60, 255, (3, 3))
        cx, cy, r = generator.uniform(0.3, 0.7, 3) * (1, 1, 0.55)
        inside = ((x - cx) ** 2 + (y - cy) ** 2 < r**2)[..., None]
        picture = np.where(inside, disc, sky * (1 - y[..., None]) + ground * y[..., None])
        pictures[place] = np.clip(picture + generator.normal(0, 9, (side, side, 3)), 0, 255)
    return pictures


def _baseline(
    alone: dict, curve: pd.DataFrame, other_curve: pd.DataFrame, settings: params.Params
) -> pd.DataFrame:
    """What ACES is compared with: the other rule's curve, and, worse by a made-up factor, other
    noise levels and, beside a selection network, the entropy.
    """
    rows, sigma = [], settings.sigma
    for factor in (0.4, 0.7, 1.4, 2.0):
        kept = max(0.0, 1 - 0.4 * abs(np.log(factor)))
        rows.append(
            {"series": "sigma", "sigma": sigma * factor, "theta": np.nan}
            | {k: kept * v for k, v in alone.items()}
        )
    if settings.select.score == "network":
        worse = curve.assign(
            acr=0.8 * curve["acr"],
            **{
                f"certified_accuracy@{r:g}": 0.8 * curve[f"certified_accuracy@{r:g}"]
                for r in settings.combine.radii
            },
        )
        rows += [{"series": "entropy", "sigma": sigma, **row} for row in worse.to_dict("records")]
    rows += other_curve.assign(sigma=sigma).to_dict("records")
    columns = [
        "series",
        "sigma",
        "theta",
        "nac",
        "acr",
        *(f"certified_accuracy@{r:g}" for r in settings.combine.radii),
    ]
    return pd.DataFrame(rows, columns=columns)


def data_of(page) -> dict:
    """What the page's script unpacks, arrays flat as they are there."""
    text = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1]
    plain = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(plain[:4], "little")
    body = -(-(4 + length) // 8) * 8

    def revived(node: dict):
        if set(node) != {"$array"}:
            return node
        kind, offset, count = node["$array"]
        return np.frombuffer(plain, f"<{kind}", count, body + offset)

    return json.loads(plain[4 : 4 + length], object_hook=revived)
