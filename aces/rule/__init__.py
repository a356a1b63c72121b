"""The mathematics: counts in, answers and their radii out. numpy and scipy only.

    outcomes = aces.rule.certify(counts, core, alpha=0.001, thetas=[0.1, 0.5])
    classes = aces.rule.predict(counts, core, alpha=0.001, thetas=[0.1, 0.5])

Two rules: `confident` (`aces.rule.confident`, the sharper one) and `paper` (`aces.rule.paper`,
Algorithms 1 and 4). Both are exact for every theta on the grid from the same counts. A guarantee
holds per image, for a theta that does not depend on the image's draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np

from aces.errors import InputError
from aces.rule import confident, paper, smoothing
from aces.rule.counts import Counts
from aces.rule.events import bins_of
from aces.rule.outcomes import ABSTAIN, Outcomes, Route, Selected
from aces.rule.sequential import Evidence
from aces.rule.statistics import check_alpha

RULES = ("confident", "paper")
_CELLS = 2**19  # outcomes computed at once: what is computed on the way stays small

__all__ = [
    "ABSTAIN",
    "RULES",
    "Outcomes",
    "Route",
    "Selected",
    "ceiling",
    "certify",
    "predict",
    "predict_from",
    "rule_of",
]


def certify(
    counts: Counts,
    core: np.ndarray,
    *,
    sigma: float | None = None,
    alpha: float,
    thetas: Sequence[float] | np.ndarray,
    rule: str = "confident",
    multiplicity: str = "iut",
) -> Outcomes:
    """With probability >= 1 - alpha, for each image and theta: ACES answers `prediction` everywhere
    within `radius`.

    core: (N,) classes of the core network; thetas: (T,) on the grid of the counts; sigma: that of
    the draws (default), another one is refused; multiplicity: of the paper's rule, `iut` or
    `bonferroni`. The confident rule has one bound and needs none.
    """
    core = _checked(counts, core, alpha=alpha, rule=rule, multiplicity=multiplicity)
    sigma, bins = counts.sigma_of(sigma), bins_of(thetas)

    def answer(part: Counts, core: np.ndarray) -> dict[str, np.ndarray]:
        if rule == "paper":
            found = paper.certify(
                part, core, sigma=sigma, alpha=alpha, bins=bins, multiplicity=multiplicity
            )
        else:
            found = confident.certify(part, core, sigma=sigma, alpha=alpha, bins=bins)
        return {each.name: getattr(found, each.name) for each in fields(Outcomes)}

    return Outcomes(**_in_parts(answer, counts, core, cells=len(bins)))


def predict(
    counts: Counts,
    core: np.ndarray,
    *,
    alpha: float,
    thetas: Sequence[float] | np.ndarray,
    rule: str = "confident",
    multiplicity: str = "iut",
) -> np.ndarray:
    """(N, T) With probability >= 1 - alpha, for each image and theta: ACES' class, unless ABSTAIN.

    The draws are those of round PREDICT, or of round BOUND where `settings.n_predict` is 0: the
    promises of CERTIFY and PREDICT are separate.
    """
    core = _checked(counts, core, alpha=alpha, rule=rule, multiplicity=multiplicity)
    bins = bins_of(thetas)

    def answer(part: Counts, core: np.ndarray) -> dict[str, np.ndarray]:
        if rule == "paper":
            classes = paper.predict(part, core, alpha=alpha, bins=bins, multiplicity=multiplicity)
        else:
            classes = confident.predict(part, core, alpha=alpha, bins=bins)
        return {"classes": classes}

    return _in_parts(answer, counts, core, cells=len(bins))["classes"]


def predict_from(
    evidence: Evidence,
    guess: np.ndarray,
    core: np.ndarray,
    *,
    alpha: float,
    thetas: Sequence[float] | np.ndarray,
    rule: str = "confident",
    multiplicity: str = "iut",
) -> np.ndarray:
    """(N, T) `predict` from the looks at a round so far; guess: (N,) guessed classes."""
    bins = bins_of(thetas)
    if rule == "paper":
        return paper.predict_from(evidence, core, alpha=alpha, bins=bins, multiplicity=multiplicity)
    return confident.predict_from(evidence, guess, core, alpha=alpha, bins=bins)


def ceiling(
    counts: Counts,
    *,
    sigma: float | None = None,
    alpha: float,
    rule: str = "confident",
    multiplicity: str = "iut",
) -> float:
    """The largest radius `certify` can give from so many draws: all of them agree. No average
    certified radius exceeds it.
    """
    _check_rule(rule)
    paper.check_multiplicity(multiplicity)
    halved = rule == "paper" and multiplicity == "bonferroni"
    return smoothing.ceiling(counts, sigma=sigma, alpha=alpha / 2 if halved else alpha)


def rule_of(rule: str | None, *, selects: bool) -> str:
    """The rule of this name, checked. None is `confident`, or `paper` where there is a selection
    network, which only the paper's rule can use.
    """
    rule = rule or ("paper" if selects else "confident")
    _check_rule(rule)
    if selects and rule != "paper":
        raise InputError(
            f"rule={rule!r} has no use for a selection network: leave select out, or take "
            "rule='paper'"
        )
    return rule


def _in_parts(
    answer: Callable[[Counts, np.ndarray], dict[str, np.ndarray]],
    counts: Counts,
    core: np.ndarray,
    *,
    cells: int,
) -> dict[str, np.ndarray]:
    """`answer` of all images, a few at a time; it gives arrays with one row per image."""
    images, step = len(core), max(1, _CELLS // max(cells, 1))
    if images <= step:
        return answer(counts, core)
    whole: dict[str, np.ndarray] = {}
    for start in range(0, images, step):
        part = slice(start, start + step)
        for name, rows in answer(counts.part(part), core[part]).items():
            if start == 0:
                whole[name] = np.empty((images, *rows.shape[1:]), dtype=rows.dtype)
            whole[name][part] = rows
    return whole


def _checked(
    counts: Counts, core: np.ndarray, *, alpha: float, rule: str, multiplicity: str
) -> np.ndarray:
    check_alpha(alpha)
    _check_rule(rule)
    paper.check_multiplicity(multiplicity)
    core = np.asarray(core)
    if core.shape != counts.guess.shape:
        raise InputError(
            f"core has shape {core.shape}: expected one class for each of the "
            f"{len(counts.guess)} images"
        )
    return core


def _check_rule(rule: str) -> None:
    if rule not in RULES:
        raise InputError(f"rule={rule!r}: expected one of {', '.join(RULES)}")
