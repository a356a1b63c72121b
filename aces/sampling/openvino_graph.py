"""An ONNX graph, as OpenVINO runs it on a CPU."""

import functools
import io
from typing import Any

import numpy as np

# One thread: the caller's. float32 for what is not int8, on every processor, and denormal numbers
# as they are. No pinning: it would give all callers the same core.
_OPTIONS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "ENABLE_CPU_PINNING": False,
    "INFERENCE_PRECISION_HINT": "f32",
    "CPU_DENORMALS_OPTIMIZATION": False,
}


class CompiledGraph:
    """Images (N, C, H, W) -> the outputs of the graph; one thread at a time may call it. It is
    compiled for each shape of images that it is given.
    """

    def __init__(self, graph: bytes):
        self._model = _core().read_model(io.BytesIO(graph))
        self._outputs = len(self._model.outputs)
        self._requests: dict[tuple[int, ...], Any] = {}

    def __call__(self, images: np.ndarray) -> list[np.ndarray]:
        from openvino import Tensor

        if images.shape not in self._requests:
            self._requests[images.shape] = self._compiled(images.shape)
        request = self._requests[images.shape]
        request.set_input_tensor(Tensor(np.ascontiguousarray(images), shared_memory=True))
        request.infer()
        return [request.get_output_tensor(place).data.copy() for place in range(self._outputs)]

    def _compiled(self, shape: tuple[int, ...]) -> Any:
        model = self._model.clone()
        model.reshape(list(shape))
        return _core().compile_model(model, "CPU", _OPTIONS).create_infer_request()


@functools.cache
def _core() -> Any:
    from openvino import Core

    return Core()
