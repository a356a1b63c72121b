"""Which normalisation a network was trained with: what is said, and when it is said clearly."""

import pytest
import torch

from aces.networks import evidence
from aces.networks.evidence import Proposal, Trial


def trial(kind: str, right: int, *, first: int = 0, of: int = 500) -> Trial:
    """A candidate that is right on `right` images from the image `first` on."""
    correct = torch.zeros(of, dtype=torch.bool)
    correct[first : first + right] = True
    return Trial("net", kind, (0.0,), (1.0,), correct.numpy())


USUAL = Proposal("full", "the usual one", firm=False)


def test_clearly_is_said_only_if_the_runner_up_is_clearly_worse():
    verdict = evidence.weigh([trial("full", 425), trial("half", 452)], USUAL, asked=False)
    assert verdict.kind == "half" and "clearly the most accurate" in verdict.reason
    verdict = evidence.weigh([trial("full", 450), trial("half", 452)], USUAL, asked=False)
    assert verdict.kind == "half" and "a toss-up, the more accurate was taken" in verdict.reason
    verdict = evidence.weigh([trial("half", 450), trial("full", 450)], USUAL, asked=False)
    assert verdict.kind == "full" and "a toss-up, the usual one was taken" in verdict.reason


def test_a_rule_by_origin_yields_to_clear_evidence_alone():
    firm = Proposal("full", "by its path", firm=True)
    close = evidence.weigh([trial("full", 450), trial("half", 453)], firm, asked=False)
    assert close.kind == "full" and "no other is clearly more accurate" in close.reason
    clear = evidence.weigh([trial("full", 400), trial("half", 450)], firm, asked=False)
    assert clear.kind == "half" and "against the rule, full: by its path" in clear.reason
    asked = evidence.weigh([trial("full", 400), trial("half", 450)], firm, asked=True)
    assert asked.kind == "full" and "though half is clearly more accurate" in asked.reason


def test_p_value_is_mcnemars_exact_test():
    """Of 10 images on which they differ, one candidate is right on 9: p = 2 (1 + 10) / 2^10."""
    a, b = trial("a", 109), trial("b", 100)  # both are right on the first 100
    b.correct[200] = True
    assert evidence.p_value(a.correct, b.correct) == pytest.approx(22 / 1024)
    assert evidence.p_value(a.correct, a.correct) == 1.0


def test_of_networks_with_the_same_tensors_the_usual_one_is_taken_unless_clearly_worse():
    """Two images out of 500 are no reason to take an unusual network; fifty are."""

    def trial(arch: str, right: int) -> evidence.Trial:
        return evidence.Trial(arch, "full", (0.5,), (0.5,), (torch.arange(500) < right).numpy())

    proposal = evidence.Proposal("full", "the usual one", firm=False)
    near = evidence.weigh([trial("usual", 450), trial("other", 452)], proposal, asked=False)
    far = evidence.weigh([trial("usual", 402), trial("other", 452)], proposal, asked=False)
    assert (near.arch, far.arch) == ("usual", "other")
