"""The identity of a network: the same for the same network, another one for every difference."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import odd_networks
from aces.networks import fingerprint, identity


class Odd(nn.Module):
    """Everything that a network may compute with besides its weights."""

    def __init__(self):
        super().__init__()
        self.network = odd_networks.convolutional()
        self.temperature, self.steps = 1.0, [1, 2, {"clip": True}]
        self.function, self.table = torch.relu, torch.arange(3)
        self.register_buffer("hidden", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.network(x) / self.temperature


def change(network: Odd, name: str) -> None:
    match name:
        case "attribute":
            network.temperature = 1.0 + 1e-9
        case "nested attribute":
            network.steps[2]["clip"] = False
        case "tensor attribute":
            network.table[1] = 7
        case "buffer that is not saved":
            network.hidden[0] = 2
        case "function":
            network.function = lambda x: x
        case "hook":
            network.network.register_forward_hook(lambda module, x, y: 2 * y)
        case "hook before":
            network.network.register_forward_pre_hook(lambda module, x: (x[0] + 1,))
        case "attribute of a layer of torch":
            network.network[3].padding = (1, 1)
        case "class":
            network.__class__ = type("Other", (Odd,), {})
        case "method":
            network.__class__ = type("Odd", (Odd,), {"forward": lambda self, x: self.network(x)})


CHANGES = [
    "attribute",
    "nested attribute",
    "tensor attribute",
    "buffer that is not saved",
    "function",
    "hook",
    "hook before",
    "attribute of a layer of torch",
    "class",
    "method",
]


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_another_identity(name):
    network, other = Odd(), Odd()
    assert identity(network) == identity(other) == identity(copy.deepcopy(network).train())
    change(other, name)
    assert identity(network) != identity(other)


def test_weights_are_part_of_it():
    network, other = Odd(), Odd()
    with torch.no_grad():
        other.network[0].weight[0, 0, 0, 0] += 1e-6
    assert fingerprint(network) != fingerprint(other) and identity(network) != identity(other)


def test_a_method_replaced_on_the_class_is_noticed(monkeypatch):
    before = identity(Odd())
    monkeypatch.setattr(Odd, "forward", lambda self, x: self.network(x) + 1)
    assert identity(Odd()) != before


@pytest.mark.slow
def test_it_is_the_same_in_every_process():
    script = "import test_identity as t; print(t.identity(t.Odd()))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ
            | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {identity(Odd())}
