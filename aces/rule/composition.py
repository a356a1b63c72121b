"""The paper's rule under its former name, while callers move to `aces.rule`."""

from functools import partial

from aces import rule
from aces.rule import ABSTAIN, Outcomes, Route
from aces.rule.events import bins_of as places_of
from aces.rule.paper import MULTIPLICITIES, check_multiplicity

__all__ = ["ABSTAIN", "MULTIPLICITIES", "Outcomes", "Route", "check_multiplicity", "places_of"]
certify = partial(rule.certify, rule="paper")
predict = partial(rule.predict, rule="paper")
ceiling = partial(rule.ceiling, rule="paper")
