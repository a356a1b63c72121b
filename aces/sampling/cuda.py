"""The forward pass on a GPU: compiled, in half precision if asked, recorded once and replayed as a CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from aces.console import errors


def record(module: nn.Module, *, batch: int, shape: tuple[int, int, int], precision: str,
           device: torch.device) -> Callable[[Tensor], list[Tensor]]:
    """`module` on `device` as a graph of fixed batch size; a smaller batch leaves rows unused."""
    dtype = getattr(torch, precision)
    x = torch.zeros((batch, *shape), device=device).contiguous(memory_format=torch.channels_last)

    def run(network):
        # TF32 would make float32 mean something else; the cache of cast weights must not outlive a recording.
        with (torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False),
              torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32, cache_enabled=False)):
            return network(x)

    with torch.cuda.device(device):
        network = _compiled(module, run)
        _warm_up(network, run)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = run(network)

    def forward(draws: Tensor) -> list[Tensor]:
        x[:len(draws)].copy_(draws)
        graph.replay()
        return [output[:len(draws)].clone() for output in outputs]  # the next replay overwrites them
    return forward


def _compiled(module: nn.Module, run) -> nn.Module:
    """The module compiled, or itself where the compiler is missing or fails."""
    try:
        network = torch.compile(module, dynamic=False)
        run(network)
        return network
    except Exception as error:
        errors.print(f"torch.compile fails here ({str(error).strip().splitlines()[0][:200]}): the network runs uncompiled",
                     markup=False)
        return module


def _warm_up(network: nn.Module, run) -> None:
    """Let libraries choose their kernels and take their memory before the recording, on a stream of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(network)
    torch.cuda.current_stream().wait_stream(stream)
