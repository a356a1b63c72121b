"""The forward pass: the fastest way to run a network on a device, chosen once and named in the
counts.

A `Network` can be sent to other processes; `open(device)` makes it callable there. Its backend's
name is part of what the draws depend on, since two ways differ in the last digits of the logits.
"""

import contextlib
import copy
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from aces import networks
from aces.console import stderr, warn
from aces.errors import InputError, one_line
from aces.networks.quantized import QuantizedNetwork, open_session
from aces.sampling import exported
from aces.sampling.cuda import Recording, no_tf32
from aces.sampling.export import Stack
from aces.sampling.export import export as _export
from aces.sampling.export import stacked as _frozen

Forward = Callable[
    [Tensor], list[Tensor]
]  # (D, C, H, W) -> logits (D, K), and of the selection network (D, 2)

_SMALL = 3 * 64 * 64  # values of an image up to which a batch is large
# Images of a batch on a CPU, small and large ones: they divide the usual numbers of draws (100 to
# guess, chunks of 200, 500 or 1,000), so that no rows are computed only to fill a batch up.
_CPU_BATCHES = (50, 20)
_GPU_BATCHES = (1024, 128)
_TOLERANCE = 1e-2  # relative to the logits: far above rounding (3e-4), far below another network
_SAME = 1e-5  # relative to the logits, for a network run twice in the same way: near rounding
# Relative to the logits, for a draw in another place of its batch: above the rounding of each
# precision. Kernels give the same bits in every place as a rule, but do not promise it.
_ROWS = {"float32": 1e-4, "int8": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
_NAMES = ("network", "selection network")
_LEVELS = (0.0, 0.25, 0.5, 1.0)  # standard deviations of the noise on the four example images


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
        copies = _Copies(module)
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
            example = _example(self.shape).to(device)
            if all(map(_agree, forward(example), recording(example))):
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


Network = OnnxNetwork | TorchNetwork


class _Copies:
    """Copies of a module, each of which is run by one thread at a time: a module may keep values
    from one of its layers to another, which a second thread would replace.
    """

    def __init__(self, module: nn.Module):
        self._module = module  # never run, so that every copy is as it was given
        self._free: queue.SimpleQueue[nn.Module] = queue.SimpleQueue()

    @contextlib.contextmanager
    def one(self) -> Iterator[nn.Module]:
        """A copy that nobody else runs."""
        try:
            module = self._free.get_nowait()
        except queue.Empty:
            module = copy.deepcopy(self._module)
        try:
            yield module
        finally:
            self._free.put(module)


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
    _check_precision(model, precision, device)
    module, example = _frozen(model, select), _example(shape)
    known = _known.get(model)
    if known is None or known.key != key or not _computes(module, example, known.logits):
        together = check(module, example, num_classes=num_classes)
        probe = [value for each in together for value in each[:, :10].flatten().tolist()]
        network = _choose(module, example, precision=precision, device=device, probe=probe)
        _check_rows(
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


@torch.inference_mode()
def check(module: nn.Module, example: Tensor, *, num_classes: int) -> tuple[Tensor, ...]:
    """The networks' logits; InputError unless they are of the right number, and the same for an
    image on its own.
    """
    shape = tuple(example.shape[1:])
    try:
        together = _run(module, example)
        alone = _run(module, example[:1])
    except Exception as error:
        raise InputError(
            f"the network cannot run images of shape {shape}: {one_line(error)}"
        ) from error
    for name, logits, single, expected in zip(
        _NAMES, together, alone, (num_classes, 2), strict=False
    ):
        if not isinstance(logits, Tensor) or logits.shape != (len(example), expected):
            found = (
                f"shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else type(logits).__name__
            )
            raise InputError(
                f"the {name} gives {found} for {len(example)} images: expected logits of shape "
                f"({len(example)}, {expected}), one for each class"
            )
        if not _agree(logits[:1], single):
            raise _not_a_function(name)
    return together


@torch.inference_mode()
def _check_rows(
    forward: Forward,
    shape: tuple[int, int, int],
    *,
    batch: int,
    precision: str,
    device: torch.device,
) -> None:
    """InputError unless a draw's logits are the same in every place of a batch, beside every other
    draw, and however often it is run.

    This is what a certificate assumes of a network. So it is looked at with batches of the size
    that is drawn, by what runs them: a full batch, the same with its rows in another order, every
    second row beside empty and beside very noisy images, and the first batch again. It finds
    mistakes, not malice: a network can always be built that behaves here and nowhere else.
    """
    source = torch.Generator().manual_seed(1)
    images, noise, others = (torch.randn((batch, *shape), generator=source) for _ in range(3))
    images = images.abs().clamp(0, 1) + torch.linspace(0, 1, batch)[:, None, None, None] * noise
    places, order = torch.arange(batch), torch.randperm(batch, generator=source)
    kept = places % 2 == 0
    beside = torch.where(kept[:, None, None, None], images, 4 * others)
    alone = torch.where(kept[:, None, None, None], images, 0.0)
    first = [each.cpu() for each in forward(images.to(device))]
    for x, rows, same in (
        (images[order], order, places),
        (beside, places, places[kept]),
        (alone, places, places[kept]),
        (images, places, places),
    ):
        for name, given, found in zip(_NAMES, first, forward(x.to(device)), strict=False):
            if not _agree(given[rows][same], found.cpu()[same], tolerance=_ROWS[precision]):
                raise _not_a_function(name)


def _not_a_function(name: str) -> InputError:
    return InputError(
        f"the {name}'s answer for an image depends on the other images of its batch, or on chance: "
        "no certificate can hold; does a layer use batch statistics or dropout in eval mode?"
    )


def _run(module: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """The networks' logits of a copy of x: a network may change its input in place."""
    return module(x.clone())


@torch.inference_mode()
def _computes(module: nn.Module, example: Tensor, logits: list[Tensor]) -> bool:
    """Whether the networks still give these logits: not all of what they compute with need be in
    their state dicts.
    """
    return all(map(functools.partial(_agree, tolerance=_SAME), logits, _run(module, example)))


def _example(shape: tuple[int, int, int]) -> Tensor:
    """(4, C, H, W) the same images each time, on which ways to run a network are compared: noisy
    ones that leave [0, 1] as the draws do, because a network may behave differently there.
    """
    source = torch.Generator().manual_seed(0)
    images = torch.rand((len(_LEVELS), *shape), generator=source)
    noise = torch.randn(images.shape, generator=source)
    return images + torch.tensor(_LEVELS)[:, None, None, None] * noise


def _choose(
    module: Stack, example: Tensor, *, precision: str, device: torch.device, probe: list[float]
) -> Network:
    small, large = _CPU_BATCHES if device.type == "cpu" else _GPU_BATCHES
    batch = small if example[0].numel() <= _SMALL else large
    if precision == "int8":
        backend = OnnxNetwork.backend_on(device)
        return OnnxNetwork(_int8_graphs(module, example), backend, batch, probe)
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
    backend = OnnxNetwork.backend_on(torch.device("cpu"))
    shape, parts = tuple(example.shape[1:]), list(module.networks)
    keep = functools.partial(exported.kept, parts, shape, lambda: _export(module, example))
    content, forget = keep()
    try:
        network = OnnxNetwork((content,), backend, batch, probe)
        _check_same(network, module, example)
    except Exception:
        forget()
        network = OnnxNetwork((keep()[0],), backend, batch, probe)
        _check_same(network, module, example)
    return network


def _int8_graphs(module: Stack, example: Tensor) -> tuple[bytes, ...]:
    """The graph of the int8 network, and that of a selection network in float32."""
    network, *select = module.networks
    assert isinstance(network, QuantizedNetwork)
    return (network.onnx, *(_export(each, example) for each in select))


def _check_precision(model: nn.Module, precision: str, device: torch.device) -> None:
    """int8 is a network of its own, which runs on a CPU."""
    quantized = isinstance(model, QuantizedNetwork)
    if quantized != (precision == "int8"):
        raise InputError(
            f"precision={precision!r} for a network that is {'int8' if quantized else 'float32'}: "
            + (
                "expected precision='int8'"
                if quantized
                else "make it int8 first, by aces.sampling.quantise(network, images, sigma=sigma)"
            )
        )
    if quantized and device.type != "cpu":
        raise InputError("precision='int8' runs on a CPU: set device='cpu' (ACES_DEVICE=cpu)")


@torch.inference_mode()
def _folded(module: nn.Module, example: Tensor) -> nn.Module:
    """The networks with batch norm folded into the convolutions, where torch can trace them."""
    from torch.fx.experimental.optimization import fuse

    try:
        folded = fuse(module)
        same = all(map(_agree, _run(module, example), _run(folded, example)))
        return folded if same else module
    except Exception:  # whatever tracing trips over, the network itself is sound
        return module


@torch.inference_mode()
def _check_same(network: Network, module: nn.Module, example: Tensor) -> None:
    """The exported network is the one that was given: by its logits, also for a batch of another
    size.
    """
    forward = network.open(torch.device("cpu"))
    for x in (example, example[:1]):
        for given, found in zip(_run(module, x), forward(x), strict=True):
            if not _agree(given, found):
                raise RuntimeError("its logits differ after export")


def _agree(a: Tensor, b: Tensor, tolerance: float = _TOLERANCE) -> bool:
    scale = a.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    return a.shape == b.shape and torch.allclose(
        a.float(), b.float(), rtol=0, atol=tolerance * (scale + 1e-3), equal_nan=True
    )


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
