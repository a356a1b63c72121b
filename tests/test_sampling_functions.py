"""Networks that keep, share or change what they compute with: a draw's logits must be those of the
draw alone, or no certificate holds.
"""

import time

import numpy as np
import pytest
import torch
from torch import nn

import odd_networks
from aces import ACES
from aces.errors import InputError
from aces.sampling import forward, quantise
from sampled import SMALL, sample
from small_models import Constant, HalfSpace, grey, half_space_model

torch.set_num_threads(1)


@pytest.fixture
def by_torch(monkeypatch):
    """torch runs the networks, which could be exported."""

    def refuse(*arguments):
        raise RuntimeError("not in this test")

    monkeypatch.setattr(forward, "_export", refuse)


def draw(network, **changes):
    return sample(network, odd_networks.images(3), **SMALL | changes)


class InPlace(nn.Module):
    """Changes its input in place, as some normalisations do, and gives the logits of `network`."""

    def __init__(self, network: nn.Module, changes: bool = True):
        super().__init__()
        self.network, self.changes = network, changes

    def forward(self, x):
        y = x.mul_(-2).add_(1) if self.changes else -2 * x + 1
        return self.network(y)


def test_a_core_that_changes_its_input_leaves_the_certified_image_as_it_is():
    """The half space is 0.4 away from the image given, and on the other side of the image that the
    core network makes of it.
    """

    def certificate(core, x):
        model = ACES(
            core=core, certify=HalfSpace(), sigma=0.25, theta=0.9, num_classes=2, workers=1
        )
        (found,) = model.certify(x, n=500, seed=0)
        return found

    for x in (grey(0.6), grey(0.6).double(), grey(0.6).numpy()):
        before = np.asarray(x).copy()
        found = certificate(InPlace(Constant([1.0, 0.0])), x)
        np.testing.assert_array_equal(np.asarray(x), before)
        assert found.prediction == 1 and 0 < found.radius < 0.4 + 1e-6
        (expected,) = half_space_model().certify(before, n=500, seed=0)
        assert found.radius == expected.radius


@pytest.mark.parametrize("changes", [{}, {"noise": "float"}, {"precision": "bfloat16"}], ids=str)
def test_a_network_that_changes_its_input_is_the_network_that_does_not(changes):
    network = odd_networks.convolutional()
    one, other = (draw(InPlace(network, each), **changes) for each in (True, False))
    np.testing.assert_array_equal(one.classes, other.classes)
    np.testing.assert_array_equal(one.doubt, other.doubt)


def test_a_selection_network_sees_the_draw_whatever_the_other_makes_of_it(by_torch):
    network, select = odd_networks.convolutional(), odd_networks.convolutional(outputs=2)
    one, other = (draw(InPlace(network, each), select=select) for each in (True, False))
    np.testing.assert_array_equal(one.score, other.score)


class Keeps(nn.Module):
    """Hands a value on from its first half to its second one by an attribute, as hooks do."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.kept = network, None

    def forward(self, x):
        self.kept = x
        time.sleep(0.002)  # another thread may run here
        if (self.kept > 1e9).any():  # a branch that tracing does not survive
            return 0 * self.network(self.kept)
        return self.network(self.kept)


def test_threads_do_not_share_what_a_module_keeps(by_torch):
    one, four = (draw(Keeps(odd_networks.convolutional()), workers=workers) for workers in (1, 4))
    np.testing.assert_array_equal(one.classes, four.classes)
    np.testing.assert_array_equal(one.doubt, four.doubt)


class OwnBuffer(nn.Module):
    """Returns its logits in a buffer of its own, which its next call overwrites."""

    def __init__(self, network: nn.Module, own: bool):
        super().__init__()
        self.network, self.own = network, own
        self.out = torch.zeros(1024, odd_networks.CLASSES)

    def forward(self, x):
        logits = self.network(x)
        return self.out[: len(x)].copy_(logits) if self.own else logits


@pytest.mark.parametrize("noise", ["exact", "float"])
@pytest.mark.parametrize("workers", [1, 3])
def test_logits_in_a_buffer_are_counted_before_it_is_overwritten(noise, workers, by_torch):
    network = odd_networks.convolutional()
    one, other = (
        draw(OwnBuffer(network, own), noise=noise, workers=workers) for own in (True, False)
    )
    np.testing.assert_array_equal(one.classes, other.classes)
    np.testing.assert_array_equal(one.doubt, other.doubt)


class View(nn.Module):
    """Its logits are a part of its input."""

    def forward(self, x):
        return x.flatten(1)[:, : odd_networks.CLASSES]


class Copy(nn.Module):
    __qualname__ = "View"  # the same hash, and so the same noise

    def forward(self, x):
        return 1.0 * x.flatten(1)[:, : odd_networks.CLASSES]


@pytest.mark.parametrize("noise", ["exact", "float"])
def test_views_of_the_input_are_counted_before_it_is_overwritten(noise):
    """By ONNX Runtime: torch has a test of its own."""
    one, other = draw(View(), noise=noise), draw(Copy(), noise=noise)
    assert one.settings.backend.startswith("onnxruntime")
    np.testing.assert_array_equal(one.classes, other.classes)


# --- Networks that look at the other draws of their batch.


class Neighbours(nn.Module):
    """Logits that depend on other draws, in one of several ways."""

    def __init__(self, how: str, network: nn.Module | None = None):
        super().__init__()
        self.network, self.how = network or odd_networks.convolutional(), how
        self.last = None

    def forward(self, x):
        y = self.network(x)
        match self.how:
            case "the draw before":  # the first row knows none
                return y + 0.5 * torch.cat([torch.zeros_like(y[:1]), y[:-1]])
            case "a little":
                return y + 0.003 * torch.cat([torch.zeros_like(y[:1]), y[:-1]])
            case "late rows":
                return torch.cat([y[:8], y[8:] - y[8:].mean(dim=0)]) if len(x) > 8 else y
            case "large batches":
                return y - y.mean(dim=0) if len(x) > 32 else y
            case "the call before":
                z = y if self.last is None else y + self.last
                self.last = 0.1 * y[:, :1].mean()
                return z
            case "as many as there is room for":  # as a mixture of experts does
                expert = nn.functional.one_hot(y.argmax(dim=1), y.shape[1])
                rank = (expert.cumsum(dim=0) * expert).sum(dim=1)
                return torch.where(rank[:, None] <= max(0.9 * len(x), 8), y, -y)
        return y


WAYS = ["the draw before", "a little", "late rows", "large batches", "the call before"]


@pytest.mark.parametrize("how", WAYS)
def test_networks_that_look_at_other_draws_are_refused(how, by_torch):
    with pytest.raises(InputError, match="depends on the other images of its batch, or on chance"):
        draw(Neighbours(how))


@pytest.mark.parametrize("seed", range(4))
def test_networks_with_room_for_some_draws_are_refused(seed, by_torch):
    """Among images that differ there is room for all; the draws of one image are much alike."""
    network = Neighbours("as many as there is room for", odd_networks.convolutional(seed=seed))
    with pytest.raises(InputError, match="depends on the other images of its batch, or on chance"):
        draw(network)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_they_are_refused_by_whatever_runs_them(precision):
    network = Neighbours("the draw before")
    if precision == "int8":
        network = quantise(network, odd_networks.images(40), sigma=0.25)
    with pytest.raises(InputError, match="depends on the other images of its batch, or on chance"):
        draw(network, precision=precision)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8"])
def test_honest_networks_pass_in_every_precision(precision):
    network = odd_networks.convolutional()
    if precision == "int8":
        network = quantise(network, odd_networks.images(40), sigma=0.25)
    assert draw(network, precision=precision).classes.sum() == 3 * 550


@pytest.mark.parametrize("how", ["the draw before", "the call before"])
def test_a_core_that_looks_at_other_images_is_refused(how):
    model = ACES(
        core=Neighbours(how, HalfSpace()),
        certify=HalfSpace(),
        sigma=0.25,
        theta=0.9,
        num_classes=2,
        workers=1,
    )
    with pytest.raises(InputError, match="core network's answer for an image depends on the other"):
        model.certify(grey(0.3, 0.6, 0.9), n=100)


def relative(logits):
    """A score that compares a draw with the others."""
    first = logits.max(dim=1).values
    return ((first - first.min()) / (first.max() - first.min() + 1)).clamp(0, 1)


def test_a_score_that_looks_at_other_draws_is_refused():
    with pytest.raises(InputError, match="score relative of a draw depends on the draws beside it"):
        draw(odd_networks.convolutional(), score=relative)


def confidence(logits):
    """A score that changes what it is given."""
    return logits.neg_().softmax(dim=1).max(dim=1).values.clamp(0, 1)


def test_a_score_that_changes_the_logits_changes_no_class():
    network = odd_networks.convolutional()
    one, other = draw(network, score=confidence), draw(network)
    np.testing.assert_array_equal(one.classes, other.classes)
