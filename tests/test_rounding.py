"""How weights are rounded for int8, against least squares solved anew after each of them."""

import importlib

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from torch import nn

from aces import networks
from aces.sampling import quantise, rounding

MOST = 64


def drawn(outputs=5, inputs=12, seed=0):
    """Weights (O, K), scales (O,), and moments (K, K) of inputs that go together."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(200, inputs)) @ source.normal(size=(inputs, inputs))
    weight = source.normal(size=(outputs, inputs))
    return weight, np.abs(weight).max(axis=1) / 8, x.T @ x


def naive(weight, scale, moments) -> np.ndarray:
    """Each row on its own: round one weight, then find the best values of all that are left."""
    held = rounding.HELD * moments.diagonal().mean()
    moments, rows = moments + held * np.eye(len(moments)), []
    order = np.argsort(-moments.diagonal(), kind="stable")
    for given, step in zip(weight, scale, strict=True):
        best, fixed = given.copy(), np.zeros(len(given))
        for at, place in enumerate(order):
            done, left = order[: at + 1], order[at + 1 :]
            fixed[place] = np.clip(np.rint(best[place] / step), -MOST, MOST)
            # The minimum over e_left of e M e^T, where the other errors are fixed.
            error = (given - fixed * step)[done]
            if len(left):
                moved = np.linalg.solve(moments[np.ix_(left, left)], moments[np.ix_(left, done)])
                best[left] = given[left] + moved @ error
        rows.append(fixed)
    return np.array(rows)


def squared_error(found, weight, scale, moments) -> np.ndarray:
    error = weight - found * scale[:, None]
    return np.einsum("ok,kl,ol->o", error, moments, error)


@pytest.mark.parametrize("seed", range(5))
def test_each_weight_makes_good_the_errors_of_those_before_it(seed):
    weight, scale, moments = drawn(seed=seed)
    found = rounding.compensated(weight, scale, moments, most=MOST)
    np.testing.assert_array_equal(found, naive(weight, scale, moments))
    nearest = np.rint(weight / scale[:, None])
    given = weight, scale, moments
    assert squared_error(found, *given).sum() < 0.7 * squared_error(nearest, *given).sum()


def test_inputs_that_have_nothing_to_do_with_each_other_change_nothing():
    weight, scale, _ = drawn()
    for moments in (np.diag(np.arange(1.0, 13.0)), np.zeros((12, 12))):
        found = rounding.compensated(weight, scale, moments, most=MOST)
        np.testing.assert_array_equal(found, np.rint(weight / scale[:, None]))


def test_no_weight_is_beyond_the_reduced_range():
    weight, scale, moments = drawn()
    found = rounding.compensated(weight, scale / 20, moments, most=MOST)
    assert np.abs(found).max() == MOST


@pytest.mark.parametrize(
    "attributes",
    [{}, {"strides": [2, 1], "pads": [1, 0, 2, 1]}, {"dilations": [2, 1], "pads": [0, 1, 0, 1]}],
    ids=["plain", "strides and pads", "dilations"],
)
def test_the_moments_give_the_error_of_a_convolution(attributes):
    """e M e^T is the squared norm of what a kernel of errors e makes of the inputs."""
    source = torch.Generator().manual_seed(0)
    x, error = (
        torch.randn((3, 2, 9, 8), generator=source),
        torch.randn((1, 2, 3, 2), generator=source),
    )
    kernel = numpy_helper.from_array(error.numpy(), name="kernel")
    node = helper.make_node("Conv", ["x", "kernel"], ["y"], name="convolution", **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "one",
        [value("x", onnx.TensorProto.FLOAT, None)],
        [value("y", onnx.TensorProto.FLOAT, None)],
        [kernel],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (moments,) = rounding._moments([node], model, x, batch=2).values()
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    made = F.conv2d(
        F.pad(x, (left, right, top, bottom)),
        error,
        stride=attributes.get("strides", 1),
        dilation=attributes.get("dilations", 1),
    )
    row = error.double().numpy().reshape(-1)
    assert row @ moments @ row == pytest.approx(made.double().square().sum().item(), rel=1e-5)


@pytest.fixture(scope="module")
def residual():
    """A residual network whose sums lean to one side, and images."""
    torch.manual_seed(0)
    network = networks.build("tiny", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3)
    network.train()
    with torch.no_grad():
        for _ in range(5):  # gives batch norm its statistics
            network(torch.rand(64, 3, 16, 16))
    images = torch.randint(0, 256, (256, 3, 16, 16), dtype=torch.uint8)
    return network.eval(), images


def error_of(network, images, monkeypatch, *without) -> float:
    """The root mean squared error of the int8 network's logits."""
    module = importlib.import_module("aces.sampling.quantise")
    for name in without:
        monkeypatch.setattr(module.rounding, name, lambda *_, **__: None)
    x = torch.rand(256, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        given, found = network(x), quantise(network, images, sigma=0.25)(x)
    monkeypatch.undo()
    return (given - found).square().mean().sqrt().item()


@pytest.mark.slow
def test_both_bring_the_logits_closer_to_those_of_the_network(residual, monkeypatch):
    found = error_of(*residual, monkeypatch)
    without = error_of(*residual, monkeypatch, "round_weights", "narrow_sums")
    assert found < 0.9 * without


@pytest.mark.slow
def test_terms_of_a_sum_lose_only_values_at_which_it_is_0(residual, monkeypatch):
    """The lower end of a term is the highest value of the other one, negative, if it was lower."""
    network, images = residual
    narrow = rounding.narrow_sums
    seen = []

    def told(model):
        seen.append(ranges_of_terms(model))
        narrow(model)
        seen.append(ranges_of_terms(model))

    module = importlib.import_module("aces.sampling.quantise")
    monkeypatch.setattr(module.rounding, "narrow_sums", told)
    quantise(network, images, sigma=0.25)
    before, after = seen
    assert len(before) == 1 and before != after
    for terms, narrowed in zip(before, after, strict=True):
        highs = [high for _, high in terms]
        for (low, high), (new_low, new_high), other in zip(
            terms, narrowed, reversed(highs), strict=True
        ):
            step = (new_high - new_low) / 255
            assert new_high == pytest.approx(high, abs=step)
            assert new_low == pytest.approx(max(low, -other), abs=step)


def ranges_of_terms(model) -> list[list[tuple[float, float]]]:
    """The lowest and highest value of the terms of each sum."""
    constants = {it.name: numpy_helper.to_array(it) for it in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    return [
        [
            (
                float((0 - int(constants[term.input[2]])) * constants[term.input[1]]),
                float((255 - int(constants[term.input[2]])) * constants[term.input[1]]),
            )
            for term in (made[name] for name in node.input)
        ]
        for node in model.graph.node
        if node.op_type == "Add"
    ]


class Branches(nn.Module):
    """Two convolutions of the image itself, a grouped one, one of a line, a constant, a sum of two
    terms that are never positive.
    """

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.grouped, self.line = nn.Conv2d(8, 8, 3, groups=4), nn.Conv1d(8, 8, 3)
        self.constant, self.head = nn.Parameter(torch.randn(8, 1, 1)), nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.first(x) + self.second(x))
        x = torch.relu(self.grouped(x) + self.constant)
        x = x + torch.relu(-torch.relu(x) - torch.relu(-x))
        return self.head(self.line(x.flatten(2)).mean(dim=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [Branches(), nn.Sequential(nn.Flatten(), nn.Linear(768, 10))], ids=["odd", "linear"]
)
def test_networks_of_other_layers_are_quantised_too(network):
    torch.manual_seed(0)
    images = torch.randint(0, 256, (64, 3, 16, 16), dtype=torch.uint8)
    x = torch.rand(128, 3, 16, 16)
    with torch.inference_mode():
        given, found = network.eval()(x), quantise(network, images, sigma=0.25)(x)
    assert (given - found).square().mean() < 0.01 * (given - given.mean()).square().mean()


class Huge(nn.Module):
    """Its inner values are finite in float32; their squares are not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.first(x)) * 1e25
        return self.head((torch.relu(self.second(x)) * 1e-25).mean(dim=(2, 3)))


@pytest.mark.slow
def test_layers_whose_moments_overflow_keep_the_nearest_numbers():
    torch.manual_seed(0)
    network, x = Huge().eval(), torch.rand(8, 3, 16, 16)
    images = torch.randint(0, 256, (64, 3, 16, 16), dtype=torch.uint8)
    with torch.inference_mode():
        given, found = network(x), quantise(network, images, sigma=0.25)(x)
    assert (given - found).abs().max() < 1e-3
