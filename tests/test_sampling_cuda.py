"""The recording of a network as a CUDA graph. No GPU is needed: what CUDA does is stood in for,
what is ours runs.
"""

import contextlib
import gc
import weakref

import pytest
import torch

import odd_networks
from aces.sampling import cuda, forward

CPU = torch.device("cpu")
STREAMS = []


class Graph:
    """Stands in for torch.cuda.CUDAGraph, which repeats the recorded work, whatever has become of
    its memory.
    """

    def replay(self) -> None:
        pass


class Stream:
    def __init__(self, device):
        STREAMS.extend([device] if device is not None else [])

    def wait_stream(self, other) -> None:
        pass


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(None))
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda what: contextlib.nullcontext())
    monkeypatch.setattr(
        torch.cuda, "graph", lambda graph, *, stream, capture_error_mode: contextlib.nullcontext()
    )
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: module)


def record(module, **changes):
    return cuda.Recording(
        module, **dict(batch=8, shape=odd_networks.SHAPE, precision="float32", device=CPU) | changes
    )


def folded():
    """As the sampler has it: traced and folded, which makes cycles of references."""
    return forward.prepare(
        odd_networks.convolutional(),
        None,
        shape=odd_networks.SHAPE,
        num_classes=odd_networks.CLASSES,
        precision="bfloat16",
        device=CPU,
    ).module


def test_the_weights_live_as_long_as_the_recording(no_gpu):
    """A graph reads the weights' memory; were it given to something else, its logits would be
    nobody's.
    """
    module = torch.nn.Sequential(folded())
    weights = [weakref.ref(parameter) for parameter in module.parameters()]
    recording = record(module)
    del module
    gc.collect()
    assert weights and all(weight() is not None for weight in weights)
    assert recording(torch.rand(3, *odd_networks.SHAPE))[0].shape == (3, odd_networks.CLASSES)


def test_each_device_records_on_a_stream_of_its_own(no_gpu):
    STREAMS.clear()
    for _ in range(2):
        record(folded())
    assert STREAMS == [CPU, CPU]


def test_a_recording_that_gives_other_logits_is_not_used(no_gpu, capsys):
    """The stand-in's replay repeats nothing, so the outputs stay those of the recording: no draw
    may be counted by it.
    """
    network = forward.TorchNetwork(folded(), odd_networks.SHAPE, "float32", "torch", 8, [])
    module = network.module
    used = network._recorded(module, lambda x: list(module(x)), CPU)
    assert not isinstance(used, cuda.Recording)
    assert "its logits differ" in " ".join(capsys.readouterr().err.split())


def test_a_network_that_cannot_be_recorded_runs_as_it_is(no_gpu, monkeypatch, capsys):
    def refuse(*arguments, **options):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    network = forward.TorchNetwork(folded(), odd_networks.SHAPE, "float32", "torch", 8, [])
    plain = lambda x: list(network.module(x))
    assert network._recorded(network.module, plain, CPU) is plain
    assert "not permitted" in " ".join(capsys.readouterr().err.split())
