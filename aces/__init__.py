"""ACES: robust and accurate classification by randomized smoothing.

A smoothed certification network answers with a certified l2 radius; a core network answers more
accurately, without one. ACES decides per image, certifiably, which of the two speaks.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aces.model.certificates import Certificate
    from aces.model.composed import ACES
    from aces.rule import certify, predict
    from aces.runtime import Runtime
    from aces.sampling.plan import DrawPlan

__version__ = "0.2.0.dev0"
__all__ = ["ACES", "Certificate", "DrawPlan", "Runtime", "certify", "predict"]

# name -> the module that defines it. `import aces` stays light: a module is loaded at its first use.
_EXPORTS = {
    "ACES": "aces.model.composed",
    "Certificate": "aces.model.certificates",
    "DrawPlan": "aces.sampling.plan",
    "Runtime": "aces.runtime",
    "certify": "aces.rule",
    "predict": "aces.rule",
}
# Modules that have moved: their names in version 0.1 -> where they are now.
_MOVED = {
    "composition": "aces.rule",
    "counts": "aces.rule.counts",
    "metrics": "aces.rule.metrics",
    "models": "aces.networks",
    "statistics": "aces.rule.statistics",
}


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name in _MOVED:
        return importlib.import_module(_MOVED[name])
    raise AttributeError(f"module 'aces' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
