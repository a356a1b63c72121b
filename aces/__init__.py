"""ACES: robust and accurate classification by randomized smoothing.

A smoothed certification network answers with a certified l2 radius; a core network answers more
accurately, without one. ACES decides per image, certifiably, which of the two speaks.
"""

__version__ = "0.1.0"


def __getattr__(name: str):
    # `import aces` stays light: torch loads with the first use of the model.
    if name in ("ACES", "Certificate"):
        from aces.model import composed

        return getattr(composed, name)
    if name == "DrawPlan":
        from aces.sampling.plan import DrawPlan

        return DrawPlan
    if name == "Runtime":
        from aces.runtime import Runtime

        return Runtime
    raise AttributeError(f"module 'aces' has no attribute {name!r}")
