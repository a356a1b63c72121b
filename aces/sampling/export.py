"""torch networks -> ONNX graphs, which ONNX Runtime runs faster than torch on a CPU."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Stack(nn.Module):
    """The networks that see each draw, as one. Each has a copy of it to itself: a network may change
    its input, and return what it or another network overwrites later.
    """

    __qualname__ = "_Stack"  # its first name, which is part of the hash of two networks

    def __init__(self, *networks: nn.Module):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if len(self.networks) == 1:
            return (self.networks[0](x),)
        return tuple(network(x.clone()).clone() for network in self.networks)


def stacked(model: nn.Module, select: nn.Module | None) -> Stack:
    """The networks that see each draw as one: a copy on the CPU in eval mode, which leaves the
    caller's networks as they are.
    """
    return frozen(Stack(*(network for network in (model, select) if network is not None)))


def frozen(network: Module) -> Module:
    """A copy on the CPU in eval mode, without gradients."""
    return copy.deepcopy(network).cpu().eval().requires_grad_(False)


def export(module: nn.Module, example: Tensor) -> bytes:
    """A network as an ONNX graph for batches of any size."""
    with silence():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )
        assert program is not None
        model = program.model_proto
    for graph in (model.graph, *model.functions):
        _forget_origin(graph)
    return model.SerializeToString()


def _forget_origin(graph: Any) -> None:
    """Remove what the exporter noted about the source code from an ONNX graph or function.

    The notes hold stack traces, with the paths of files. The hash of an int8 network is that of its
    graph, and its noise depends on the hash: with the paths, a clone in another folder would draw
    other noise.
    """
    for part in (graph, *graph.node, *getattr(graph, "initializer", ())):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:  # the branches of a condition, the body of a loop
            if attribute.HasField("g"):
                _forget_origin(attribute.g)
            for inner in attribute.graphs:
                _forget_origin(inner)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """The exporter's warnings speak to developers of torch."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
