"""A network in int8: an ONNX graph that ONNX Runtime runs on a CPU, as a torch module.

The graph is what is certified, saved and served. It is a buffer of the module, so that the
network's fingerprint is the fingerprint of the graph.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aces import files, paths
from aces.errors import InputError, one_line


class QuantizedNetwork(nn.Module):
    """Images (N, C, H, W) in [0, 1] -> logits (N, K), by a graph with whole numbers of 8 bits.

    Made by `aces.sampling.quantise`. It has no gradients, and it runs on the CPU only.
    """

    graph: Tensor

    def __init__(self, graph: bytes):
        super().__init__()
        self.register_buffer("graph", torch.from_numpy(np.frombuffer(graph, dtype=np.uint8).copy()))
        self._session: Any = None

    @property
    def onnx(self) -> bytes:
        """The graph, as an ONNX file."""
        return self.graph.cpu().numpy().tobytes()

    def forward(self, x: Tensor) -> Tensor:
        if self._session is None:
            self._session = open_session(self.onnx)
        (name,) = [value.name for value in self._session.get_inputs()]
        values = x.detach().cpu().float().contiguous().numpy()
        return torch.from_numpy(self._session.run(None, {name: values})[0])

    def __getstate__(self) -> dict:
        # A session cannot be copied or sent to another process: it is opened again there.
        return self.__dict__ | {"_session": None}

    def save(self, path: str | Path) -> None:
        """Write the graph as an ONNX file; `aces.files.digest` of it names the network."""
        files.write_bytes(path, self.onnx)


def load_deployed(folder: Path = Path()) -> QuantizedNetwork:
    """The int8 network that the stage `sample` of the run in `folder` made and ran."""
    remedy = "run `dvc repro -f sample`"
    about = files.read_json(folder / paths.DEPLOYED_ABOUT, remedy=remedy)
    path = folder / paths.DEPLOYED_GRAPH
    if path.is_file() and files.digest(path) != about.get("sha256"):
        raise InputError(f"{path} is not the network that was sampled: {remedy}")
    return load_quantized(path, remedy=remedy)


def load_quantized(path: str | Path, *, remedy: str = "save it again") -> QuantizedNetwork:
    """The network that `QuantizedNetwork.save` wrote. remedy: what to do if that is impossible."""
    path = Path(path)
    try:
        graph = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {remedy}") from None
    try:
        open_session(graph)
    except InputError:
        raise
    except Exception as error:  # whatever ONNX Runtime says about a damaged file
        raise InputError(f"{path} is not an ONNX network ({one_line(error)}): {remedy}") from None
    return QuantizedNetwork(graph)


def open_session(graph: bytes):
    """ONNX Runtime's session of a graph, one thread per call."""
    try:
        import onnxruntime
    except ImportError:
        raise InputError(
            "an int8 network needs ONNX Runtime, which is not installed: pip install 'aces[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
