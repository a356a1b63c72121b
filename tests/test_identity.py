"""The identity of a network: the same for the same network, another one for every difference."""

import copy
import functools
import logging
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import odd_networks
from aces.networks import fingerprint, identity
from aces.networks.identity import describe


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


def test_a_name_that_a_function_has_not_got_yet_is_no_trouble():
    """Python makes such a function when one is defined before what it uses."""

    def early():
        return late

    before = describe(early)
    assert "an empty cell" in repr(before)
    late = 3
    assert describe(early) != before


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


# --- What the code reads, besides the attributes.

SCALE = 2.0
TABLE = {"rows": torch.arange(4.0), "other": None}
LOGGER = logging.getLogger(__name__)


def helper(x):
    return deeper(x) * SCALE


def deeper(x, *, power=1):
    return x**power


@functools.lru_cache
def remembered(n):
    return n + 1


class Reader(nn.Module):
    """Computes with what stands beside it."""

    temperature = 1.0

    def __init__(self, low=None, high=1, part=None, function=torch.relu):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        self.parts, self.function = [part or nn.Linear(2, 2, bias=False)], function
        with torch.no_grad():
            for each in self.parameters():
                each.fill_(0.5)
            self.parts[0].weight.fill_(0.5)
        self.clip = lambda x: x.clamp(low, high)

    def forward(self, x):
        LOGGER.debug("forward")
        y = self.clip(helper(self.layers(x))) / self.temperature
        return y + TABLE["rows"] + remembered(0) + odd_networks.CLASSES


READ = {
    "global": lambda patch: patch.setitem(globals(), "SCALE", 3.0),
    "global tensor": lambda patch: TABLE.__setitem__("rows", torch.arange(4.0) + 1),
    "helper": lambda patch: patch.setitem(globals(), "helper", lambda x: x),
    "helper of a helper": lambda patch: patch.setitem(globals(), "deeper", lambda x: x),
    "keyword default": lambda patch: patch.setitem(deeper.__kwdefaults__, "power", 2),
    "remembering helper": lambda patch: patch.setitem(
        globals(), "remembered", functools.lru_cache(lambda n: n + 2)
    ),
    "constant of a module": lambda patch: patch.setattr(odd_networks, "CLASSES", 5),
    "class attribute": lambda patch: patch.setattr(Reader, "temperature", 1.015),
}


@pytest.mark.parametrize("name", READ)
def test_what_the_code_reads_is_part_of_it(name, monkeypatch):
    before = identity(Reader())
    assert identity(Reader()) == before
    monkeypatch.setitem(TABLE, "rows", TABLE["rows"])
    READ[name](monkeypatch)
    assert identity(Reader()) != before


@pytest.mark.parametrize(
    "change",
    [dict(low=1, high=None), dict(part=nn.Linear(2, 2)), dict(function=torch.tanh)],
    ids=["closure", "part", "function"],
)
def test_closures_loose_modules_and_built_in_functions_are_part_of_it(change):
    """A cell that holds None, a module in a plain list, a function that is not written in Python."""
    assert identity(Reader(**change)) != identity(Reader())


def test_weights_of_a_module_in_a_list_are_part_of_it():
    one, other = Reader(), Reader()
    with torch.no_grad():
        other.parts[0].weight[0, 0] += 1
    assert identity(one) != identity(other)


def test_a_layer_used_twice_is_named_twice():
    """Without weights, the second place of a layer is in no state dict."""
    flatten, relu, linear = nn.Flatten(), nn.ReLU(), nn.Linear(4, 4)
    assert identity(nn.Sequential(flatten, relu, linear, relu)) != identity(
        nn.Sequential(flatten, relu, linear)
    )


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, weight):
        return weight * self.factor


class Hook:
    """An object whose method is a hook."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, x, y):
        return y * self.factor

    def call(self, module, x, y):
        return y * self.factor


@pytest.mark.parametrize("kind", ["parametrisation", "hook", "method as a hook", "hook of all"])
def test_parametrisations_and_hooks_are_part_of_it_with_their_values(kind):
    def changed(factor):
        torch.manual_seed(0)
        network = nn.Linear(3, 3)
        match kind:
            case "parametrisation":
                parametrize.register_parametrization(network, "weight", Scaled(factor))
            case "hook":
                network.register_forward_hook(Hook(factor))
            case "method as a hook":
                network.register_forward_hook(Hook(factor).call)
            case "hook of all":
                handle = nn.modules.module.register_module_forward_hook(Hook(factor))
                try:
                    return identity(network)
                finally:
                    handle.remove()
        return identity(network)

    assert changed(1.0) == changed(1.0)
    assert changed(1.0) != changed(2.0)


def test_loggers_and_the_modules_of_others_are_no_part_of_it():
    before = identity(Reader())
    logging.getLogger("another").addHandler(logging.NullHandler())
    LOGGER.debug("said")
    assert identity(Reader()) == before


class Refuses:
    """An object that answers no question, as some libraries' placeholders do."""

    __slots__ = ()

    def __getattr__(self, name):
        raise ValueError("ask something else")

    def __repr__(self):
        raise ValueError("ask something else")


REFUSES = Refuses()


class Wraps(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Strange(Wraps):
    def forward(self, x):
        return super().forward(x) if REFUSES is not None else x


def test_a_global_with_the_name_of_an_attribute_is_no_part_of_it(monkeypatch):
    """`inner` is an attribute here, whatever a script calls by that name."""
    before = identity(Wraps(odd_networks.convolutional()))
    monkeypatch.setattr(sys.modules[__name__], "inner", Refuses(), raising=False)
    assert identity(Wraps(odd_networks.convolutional())) == before


def test_values_that_answer_no_question_are_known_by_their_class(monkeypatch):
    network = Strange(odd_networks.convolutional())
    before = identity(network)
    assert identity(network) == before
    monkeypatch.setattr(sys.modules[__name__], "REFUSES", None)
    assert identity(network) != before


@pytest.mark.slow
def test_it_is_the_same_in_every_process():
    script = "import test_identity as t; print(t.identity(t.Odd()), t.identity(t.Reader()))"
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
    assert found == {f"{identity(Odd())} {identity(Reader())}"}
