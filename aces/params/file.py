"""The whole of params.yaml, and what its sections must agree on."""

import math
from typing import Annotated

from pydantic import Field, model_validator

from aces import grid
from aces.params.calibrate import Calibrate
from aces.params.combine import Combine
from aces.params.dataset import Dataset
from aces.params.networks import Certify, Core, Select
from aces.params.report import Baseline, Report
from aces.params.sample import Sample
from aces.params.section import Section, must

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Params(Section):
    sigma: Annotated[float, Field(ge=1e-6, lt=10)] = 0.25
    """Standard deviation of the noise, in [0, 1] pixel units."""
    seed: Seed = 0
    dataset: Dataset = Dataset()
    core: Core = Core()
    certify: Certify = Certify()
    select: Select = Select()
    sample: Sample = Sample()
    calibrate: Calibrate = Calibrate()
    combine: Combine = Combine()
    report: Report = Report()
    baseline: Baseline = Baseline()

    @model_validator(mode="after")
    def _check(self) -> "Params":
        self._check_thetas()
        self._check_macer()
        self._check_draws()
        must(
            self.calibrate.images > 0 or self.report.theta is not None,
            "calibrate.images",
            0,
            "images to choose theta on, or a theta of your own in report.theta",
        )
        return self

    def _check_thetas(self) -> None:
        known = grid.thetas(self.combine.theta_step)
        asked = [*self.report.thetas, *([] if self.report.theta is None else [self.report.theta])]
        missing = [theta for theta in asked if not any(abs(theta - it) < 1e-9 for it in known)]
        step = f"multiples of combine.theta_step={self.combine.theta_step:g}"
        name = "report.theta" if missing == [self.report.theta] else "report.thetas"
        must(not missing, name, missing, step)

    def _check_macer(self) -> None:
        decays = len(self.certify.train.milestones)
        late = [block for block in self.certify.macer if block.after_milestone > decays]
        if self.certify.method == "macer" and late:
            why = f"at most the {decays} milestones of certify.train, or the radius loss never sets in"
            must(False, "certify.macer.after_milestone", late[0].after_milestone, why)

    def _check_draws(self) -> None:
        adaptive, alpha = self.sample.adaptive, self.combine.alpha
        needed = needed_draws(alpha * (adaptive.spend[-1] if adaptive.enabled else 1.0))
        for name in ("n", "n_predict"):
            n = getattr(self.sample, name)
            if n < needed and not (name == "n_predict" and n == 0):
                raise ValueError(
                    f"sample.{name}={n} is too small for combine.alpha={alpha}: every answer would "
                    f"be an abstention; set sample.{name} to at least {needed}"
                )
        fewest = needed_draws(alpha * adaptive.spend[-1])
        if self.calibrate.n < fewest:
            raise ValueError(
                f"calibrate.n={self.calibrate.n} is too small for combine.alpha={alpha}: every "
                f"answer would be an abstention; set calibrate.n to at least {fewest}"
            )


def needed_draws(alpha: float) -> int:
    """The least n for which draws that all agree pass every test.

    These are a lower bound at alpha / 2 above 1/2, which needs 2^-n < alpha / 2, and a two-sided
    test at alpha / 2, which needs 2 * 2^-n <= alpha / 2.
    """
    smallest = math.ulp(0.0)  # where alpha is the product of numbers, it may have become 0
    return math.ceil(2 - math.log2(max(alpha, smallest)))
