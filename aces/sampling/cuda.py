"""The forward pass on a GPU: compiled, in half precision if asked, recorded once and replayed as a
CUDA graph.
"""

import contextlib
import threading

import torch
from torch import Tensor, nn

from aces.console import stderr

_recording = threading.Lock()  # a process records one graph at a time


def no_tf32(device: torch.device) -> contextlib.AbstractContextManager:
    """On a GPU, float32 convolutions in float32: TF32 keeps ten bits of it."""
    return (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        if device.type == "cuda"
        else contextlib.nullcontext()
    )


class Recording:
    """`module` on `device` as a graph of fixed batch size; a smaller batch leaves rows unused. Any
    thread may call it.

    A graph reads the weights where they lie but does not keep them there: this object does.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        batch: int,
        shape: tuple[int, int, int],
        precision: str,
        device: torch.device,
    ):
        self._x = torch.zeros((batch, *shape), device=device).contiguous(
            memory_format=torch.channels_last
        )
        self._dtype, self._device, self._lock = getattr(torch, precision), device, threading.Lock()
        with _recording, torch.cuda.device(device):
            self._network = self._compiled(module)
            # A stream of this device: torch's own for recording belongs to the first device that
            # ever recorded.
            stream = torch.cuda.Stream(device)
            self._warm_up(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = self._run(self._network)

    def __call__(self, draws: Tensor) -> list[Tensor]:
        with self._lock, torch.cuda.device(self._device):
            self._x[: len(draws)].copy_(draws)
            self._graph.replay()
            return [
                output[: len(draws)].clone() for output in self._outputs
            ]  # the next replay overwrites them

    def _run(self, network: nn.Module) -> tuple[Tensor, ...]:
        # The cache of cast weights must not outlive a recording.
        with (
            torch.inference_mode(),
            no_tf32(self._device),
            torch.autocast(
                "cuda", dtype=self._dtype, enabled=self._dtype != torch.float32, cache_enabled=False
            ),
        ):
            return network(self._x)

    def _compiled(self, module: nn.Module) -> nn.Module:
        """The module compiled, or itself where the compiler is missing or fails."""
        try:
            network: nn.Module = torch.compile(module, dynamic=False)  # type: ignore[assignment]
            self._run(network)
            return network
        except Exception as error:
            stderr.print(
                f"torch.compile fails here ({str(error).strip().splitlines()[0][:200]}): the "
                "network runs uncompiled",
                markup=False,
            )
            return module

    def _warm_up(self, stream) -> None:
        """Let libraries choose their kernels and take their memory before the recording."""
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._run(self._network)
        torch.cuda.current_stream().wait_stream(stream)
