"""The forward pass: the fastest way to run a network on a device, chosen once and named in the
counts.

A `Network` can be sent to other processes; `open(device)` makes it callable there. Its backend's
name is part of what the draws depend on, since two ways differ in the last digits of the logits.
"""

import copy
import functools
import threading
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from aces import networks
from aces.console import stderr, warn
from aces.errors import is_installed, one_line
from aces.networks.quantized import QuantizedNetwork, open_session
from aces.sampling import exported
from aces.sampling.checks import (
    Forward,
    agree,
    check_logits,
    check_precision,
    check_rows,
    check_same,
    computes,
    example_images,
    run,
    runs_int8,
)
from aces.sampling.copies import Copies
from aces.sampling.cuda import Recording, no_tf32
from aces.sampling.export import Stack
from aces.sampling.export import export as _export
from aces.sampling.export import stacked as _frozen
from aces.sampling.openvino_graph import CompiledGraph

_SMALL = 3 * 64 * 64  # values of an image up to which a batch is large
# Images of a batch on a CPU, small and large ones: they divide the usual numbers of draws (100 to
# guess, chunks of 200, 500 or 1,000), so that no rows are computed only to fill a batch up.
_CPU_BATCHES = (50, 20)
_GPU_BATCHES = (1024, 128)


@dataclass(frozen=True, eq=False)
class OnnxNetwork:
    """ONNX Runtime on a CPU, one thread per call: batch norm is folded into the convolutions, layouts
    are blocked.
    """

    graphs: tuple[bytes, ...]  # each may have several outputs; a draw runs through all of them
    backend: str
    batch: int
    probe: list[float]  # a few logits of fixed inputs: tell networks of the same identity apart

    @staticmethod
    def backend_on(device: torch.device) -> str:
        return f"onnxruntime {_version('onnxruntime')} {cpu_kind()}"

    def open(self, device: torch.device) -> Forward:
        assert device.type == "cpu"
        sessions = [open_session(graph) for graph in self.graphs]
        names = [session.get_inputs()[0].name for session in sessions]

        def forward(x: Tensor) -> list[Tensor]:
            values = x.numpy()
            return [
                torch.from_numpy(logits)
                for session, name in zip(sessions, names, strict=True)
                for logits in session.run(None, {name: values})
            ]

        return forward


@dataclass(frozen=True, eq=False)
class OpenVinoNetwork:
    """OpenVINO on a CPU, one thread per call: its int8 convolutions are faster than ONNX Runtime's,
    and add to what they are added to before they round.
    """

    graphs: tuple[bytes, ...]
    backend: str
    batch: int
    probe: list[float]

    @staticmethod
    def backend_on(device: torch.device) -> str:
        return f"openvino {_version('openvino')} {cpu_kind()}"

    def open(self, device: torch.device) -> Forward:
        assert device.type == "cpu"
        copies = Copies(lambda: [CompiledGraph(graph) for graph in self.graphs])

        def forward(x: Tensor) -> list[Tensor]:
            values = x.numpy()
            with copies.one() as graphs:
                return [torch.from_numpy(logits) for graph in graphs for logits in graph(values)]

        return forward


@dataclass(frozen=True, eq=False)
class TorchNetwork:
    """torch, channels-last; on a GPU compiled and recorded as a CUDA graph."""

    module: nn.Module
    shape: tuple[int, int, int]
    precision: str
    backend: str
    batch: int
    probe: list[float]

    @staticmethod
    def backend_on(device: torch.device) -> str:
        return f"torch {_version('torch')} {kind_of(device)}"

    def open(self, device: torch.device) -> Forward:
        module = copy.deepcopy(self.module).to(device)
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        copies = Copies(lambda: copy.deepcopy(module))  # the given one is never run
        autocast = functools.partial(
            torch.autocast,
            device.type,
            enabled=self.precision != "float32",
            dtype=getattr(torch, self.precision) if self.precision != "float32" else None,
        )

        def forward(x: Tensor) -> list[Tensor]:
            with autocast(), no_tf32(device), copies.one() as network:
                logits = network(x.clone(memory_format=torch.channels_last))
                # The network may keep what it returns, and overwrite it when it runs next.
                return [each.clone() for each in logits]

        return forward if device.type == "cpu" else self._recorded(module, forward, device)

    @torch.inference_mode()
    def _recorded(self, module: nn.Module, forward: Forward, device: torch.device) -> Forward:
        """The network as a CUDA graph, if that gives the network's logits; else as it is."""
        try:
            recording = Recording(
                module, batch=self.batch, shape=self.shape, precision=self.precision, device=device
            )
            example = example_images(self.shape).to(device)
            if all(map(agree, forward(example), recording(example))):
                return recording
            reason = "its logits differ"
        except RuntimeError as error:  # such as a network whose path depends on its input
            reason = one_line(error)
        stderr.print(
            f"the network cannot be recorded as a CUDA graph ({reason}): it runs as it is, more "
            "slowly",
            markup=False,
        )
        return forward


Network = OnnxNetwork | OpenVinoNetwork | TorchNetwork


class _Prepared(NamedTuple):
    """A prepared network, and the key and logits by which a change of it is noticed."""

    key: tuple
    logits: list[Tensor]  # of the example images
    network: Network


_known: "weakref.WeakKeyDictionary[nn.Module, _Prepared]" = weakref.WeakKeyDictionary()
_opened: "weakref.WeakKeyDictionary[Network, dict[torch.device, Forward]]" = (
    weakref.WeakKeyDictionary()
)
_opening = threading.Lock()


def prepare(
    model: nn.Module,
    select: nn.Module | None,
    *,
    shape: tuple[int, int, int],
    num_classes: int,
    precision: str,
    device: torch.device,
) -> Network:
    """Choose the way to run `model` (and `select`) on a device, after checking that they can be run
    at all.

    shape: (C, H, W) of the images. A network that was prepared before is not prepared again.
    """
    key = (identity_of(model, select), shape, num_classes, precision, kind_of(device))
    check_precision(model, precision, device)
    module, example = _frozen(model, select), example_images(shape)
    known = _known.get(model)
    if known is None or known.key != key or not computes(module, example, known.logits):
        together = check_logits(module, example, num_classes=num_classes)
        probe = [value for each in together for value in each[:, :10].flatten().tolist()]
        network = _choose(module, example, precision=precision, device=device, probe=probe)
        check_rows(
            opened(network, device), shape, batch=network.batch, precision=precision, device=device
        )
        known = _known[model] = _Prepared(key, list(together), network)
    return known.network


def opened(network: Network, device: torch.device) -> Forward:
    """The network on a device, made callable there once: compiling and recording take long."""
    with _opening:
        ways = _opened.setdefault(network, {})
        if device not in ways:
            ways[device] = network.open(device)
        return ways[device]


def hash_of(model: nn.Module, select: nn.Module | None) -> str:
    """The model hash of the counts: of the network, and of a selection network if there is one."""
    return networks.fingerprint(model if select is None else Stack(model, select))


def identity_of(model: nn.Module, select: nn.Module | None) -> str:
    """What caches and scratch are keyed by: everything that either network computes with."""
    return networks.identity(model if select is None else Stack(model, select))


def _choose(
    module: Stack, example: Tensor, *, precision: str, device: torch.device, probe: list[float]
) -> Network:
    small, large = _CPU_BATCHES if device.type == "cpu" else _GPU_BATCHES
    batch = small if example[0].numel() <= _SMALL else large
    if precision == "int8":
        return _int8(module, example, batch=batch, probe=probe)
    if device.type == "cpu" and precision == "float32":
        try:
            return _exported(module, example, batch=batch, probe=probe)
        except Exception as error:
            why = "pip install 'aces[onnx]'" if isinstance(error, ImportError) else one_line(error)
            warn(f"torch runs the network, more slowly than ONNX Runtime would ({why})")
    return TorchNetwork(
        _folded(module, example),
        (example.shape[1], example.shape[2], example.shape[3]),
        precision,
        TorchNetwork.backend_on(device),
        batch,
        probe,
    )


def _exported(module: Stack, example: Tensor, *, batch: int, probe: list[float]) -> OnnxNetwork:
    """The networks in ONNX, checked to compute the same; exported again if a kept file does not."""
    cpu = torch.device("cpu")
    backend = OnnxNetwork.backend_on(cpu)
    shape, parts = tuple(example.shape[1:]), list(module.networks)
    keep = functools.partial(exported.kept, parts, shape, lambda: _export(module, example))
    content, forget = keep()
    try:
        network = OnnxNetwork((content,), backend, batch, probe)
        check_same(network.open(cpu), module, example)
    except Exception:
        forget()
        network = OnnxNetwork((keep()[0],), backend, batch, probe)
        check_same(network.open(cpu), module, example)
    return network


def _int8(
    module: Stack, example: Tensor, *, batch: int, probe: list[float]
) -> OnnxNetwork | OpenVinoNetwork:
    """By OpenVINO, where it is installed and nearly computes what ONNX Runtime does; else by that."""
    cpu, graphs = torch.device("cpu"), _int8_graphs(module, example)
    if is_installed("openvino"):
        why = "its logits differ"
        try:
            network = OpenVinoNetwork(graphs, OpenVinoNetwork.backend_on(cpu), batch, probe)
            if runs_int8(opened(network, cpu), module, example, batch=batch):
                return network
        except Exception as error:  # an operation that it does not know, a broken installation
            # The first of its lines says where in its code that is.
            why = one_line(" ".join(str(error).split()) or type(error).__name__)
        warn(f"ONNX Runtime runs the int8 network, more slowly than OpenVINO would ({why})")
    return OnnxNetwork(graphs, OnnxNetwork.backend_on(cpu), batch, probe)


def _int8_graphs(module: Stack, example: Tensor) -> tuple[bytes, ...]:
    """The graph of the int8 network, and that of a selection network in float32."""
    network, *select = module.networks
    assert isinstance(network, QuantizedNetwork)
    return (network.onnx, *(_export(each, example) for each in select))


@torch.inference_mode()
def _folded(module: nn.Module, example: Tensor) -> nn.Module:
    """The networks with batch norm folded into the convolutions, where torch can trace them."""
    from torch.fx.experimental.optimization import fuse

    try:
        folded = fuse(module)
        same = all(map(agree, run(module, example), run(folded, example)))
        return folded if same else module
    except Exception:  # whatever tracing trips over, the network itself is sound
        return module


def kind_of(device: torch.device) -> str:
    """Where the noise is made and the kernels are chosen: both may depend on the kind of GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cpu_kind() -> str:
    """The instructions that kernels for this CPU use; with others, logits differ in their last
    digits, and in int8 by more.
    """
    vnni = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
    return torch.backends.cpu.get_cpu_capability() + (" VNNI" if vnni else "")


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package).partition("+")[0]
