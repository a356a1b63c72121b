"""What ACES says about one image: a certificate or a prediction, with all that it depends on."""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from aces.rule import ABSTAIN, Route
from aces.rule.statistics import floor_digits

GREY_LEVELS = 255
_WHO = {
    Route.CERTIFY: "the certification network",
    Route.CORE: "the core network",
    Route.AGREE: "both networks",
}


@dataclass(frozen=True)
class Circumstances:
    """What all answers of one call have in common.

    The same question about the same images and networks, with these values, has the same answers on
    the same kind of machine.
    """

    alpha: float = 0.001  # the probability with which one answer may be wrong
    seed: int = 0
    sigma: float = 0.0
    theta: float = 0.0
    rule: str = ""  # "confident" or "paper"
    noise: str = ""  # "exact" or "float"
    precision: str = ""  # of the certification network
    backend: str = ""  # what ran it
    generator: str = ""  # what made the random numbers
    tv: float = (
        0.0  # total-variation distance of a draw from the exact law; every bound allows for it
    )
    model: str = ""  # sha256 of the certification network, and of a selection network with it
    core: str = ""  # sha256 of the core network
    n0: int = 0  # draws that fix the guesses
    n: int = 0  # draws that bound or test them, at most


@dataclass(frozen=True)
class Certificate:
    """What CERTIFY says of one image, with probability at least 1 - alpha over its draws.

    Unless `prediction` is ABSTAIN (-1), it is what ACES answers at the image. If `radius` is above
    0, ACES gives the same answer at every image that is nearer than `radius` in the l2 norm. Without
    a radius, the answer for a float image is about the draws at the lattice point next to it, which
    is `rounding` away, and the core network's class of the image itself.

    `p_select` and `p_class` are lower bounds. Each of them alone holds with probability at least
    1 - alpha, and so does the certificate that follows from them; that both hold at once has
    probability at least 1 - 2 alpha only.
    """

    prediction: int  # class, or ABSTAIN
    radius: float  # l2, of pixels in [0, 1]; 0 where nothing around the image is certified
    route: Route  # who answered
    p_select: float  # lower bound of the probability that a draw makes the guessed selection
    p_class: float  # lower bound of the probability that a draw is of the guessed class
    alpha: float
    draws: int  # made in all
    invalid: int  # of these, with NaN or infinite logits
    seed: int  # repeats the draws
    name: str = ""  # of the class
    values: int = 0  # numbers in the image, C * H * W; 0 where that is not known
    rounding: float = (
        0.0  # l2 by which the image was moved to the lattice; the radius allows for it
    )
    sigma: float = 0.0
    theta: float = 0.0
    rule: str = ""
    noise: str = ""
    precision: str = ""
    backend: str = ""
    generator: str = ""
    tv: float = 0.0
    model: str = ""
    core: str = ""
    n0: int = 0
    n: int = 0

    @property
    def abstains(self) -> bool:
        return self.prediction == ABSTAIN

    @property
    def grey_levels(self) -> float:
        """The radius for pixels from 0 to 255: the l2 norm of a change in grey levels."""
        return self.radius * GREY_LEVELS

    @property
    def reach(self) -> str:
        """The radius in everyday terms; empty without one."""
        return reach(self.radius, values=self.values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values under the names above, for JSON and tables."""
        return asdict(self) | {"route": self.route.name.lower()}

    def __str__(self) -> str:
        if self.abstains:
            return f"abstains ({self.draws:,} draws)"
        answer = f"{self.name or f'class {self.prediction}'}, by {_WHO[self.route]}"
        made = f"(alpha {self.alpha:g}, {self.draws:,} draws)"
        if self.radius <= 0:
            return f"{answer}, no radius {made}"
        around = f"certified within {floor_digits(self.radius, 4)}"
        return f"{answer}, {around}{f': {self.reach}' if self.reach else ''} {made}"


class Prediction(int):
    """What PREDICT says of one image: the class, or ABSTAIN (-1).

    It is an int that also knows how it came about: with probability at least 1 - alpha over the
    draws it is the class that ACES answers.
    """

    route: Route  # who answered
    draws: int
    invalid: int  # of the draws, with NaN or infinite logits
    name: str  # of the class
    alpha: float
    seed: int  # repeats the draws
    sigma: float
    theta: float
    rule: str
    noise: str
    precision: str
    backend: str
    generator: str
    rounding: (
        float  # l2 by which the image was moved to the lattice: the answer speaks of that point
    )
    tv: float
    model: str
    core: str
    n0: int
    n: int

    def __new__(
        cls,
        prediction: int,
        *,
        route: Route,
        draws: int = 0,
        invalid: int = 0,
        name: str = "",
        rounding: float = 0.0,
        **circumstances: Any,
    ) -> "Prediction":
        self = super().__new__(cls, prediction)
        self.__dict__.update(
            asdict(Circumstances(**circumstances)),
            route=Route(route),
            draws=draws,
            invalid=invalid,
            name=name,
            rounding=rounding,
        )
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, Any]]:
        """What `__new__` is called with when a prediction is unpickled or copied."""
        return (int(self),), dict(self.__dict__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Prediction cannot be changed: {name}")

    @property
    def abstains(self) -> bool:
        return self == ABSTAIN

    def as_dict(self) -> dict[str, Any]:
        """Plain values under the names above, for JSON and tables."""
        return {"prediction": int(self)} | self.__dict__ | {"route": self.route.name.lower()}

    def __repr__(self) -> str:
        return f"Prediction({int(self)}, name={self.name!r}, draws={self.draws}, seed={self.seed})"

    def __str__(self) -> str:
        if self.abstains:
            return f"abstains ({self.draws:,} draws)"
        answer = f"{self.name or f'class {int(self)}'}, by {_WHO[self.route]}"
        return f"{answer} (alpha {self.alpha:g}, {self.draws:,} draws)"


class Change(NamedTuple):
    """What an l2 radius allows, in grey levels of 255, rounded down: both changes lie within it."""

    one_value: str  # by how much one value may change, the others staying as they are
    all_values: str  # by how much all values may change at once


def change(radius: float, *, values: int) -> Change:
    """An l2 radius as changes of an image with so many values."""
    levels = radius * GREY_LEVELS
    return Change(
        floor_digits(min(levels, GREY_LEVELS), 0 if levels >= 10 else 1),
        floor_digits(min(levels / math.sqrt(values), GREY_LEVELS), 2),
    )


def reach(radius: float, *, values: int) -> str:
    """An l2 radius in words: "one value by 64, or all 3,072 by 1.15 grey levels"."""
    if radius <= 0 or values < 1:
        return ""
    allowed = change(radius, values=values)
    return (
        f"one value by {allowed.one_value}, or all {values:,} by {allowed.all_values} grey levels"
    )
