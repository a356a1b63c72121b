"""float32 -> int8: the network in 8-bit whole numbers, calibrated on noisy images.

Static quantisation by ONNX Runtime. Weights have a scale for each output channel. The range of an
activation is fixed beforehand from what noisy images give, so that a draw's logits depend on that
draw alone. Weights use 7 of their 8 bits ("reduced range"): sums of two products then fit in the 16
bits in which processors without VNNI form them, and no sum is cut off.

The result is another network than the one that was given, with its own hash. It is the one that is
certified.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError
from aces.networks.quantized import QuantizedNetwork
from aces.sampling.export import export, frozen, silence
from aces.sampling.images import Images, as_floats

IMAGES = 256  # noisy images that calibrate the ranges
BATCH = 32


def quantise(
    network: nn.Module, images: np.ndarray | Tensor | Images, *, sigma: float, seed: int = 0
) -> QuantizedNetwork:
    """The network in int8.

    images: training images, as of `aces.sampling.sample`; at most 256 of them are used, evenly
    spread. Each gets Gaussian noise of standard deviation sigma. The same arguments give the same
    network on the same kind of machine.
    """
    if isinstance(network, QuantizedNetwork):
        return network
    # The exporter writes tensors of inference mode down in another way.
    with torch.inference_mode(False), torch.no_grad():
        noisy = _noisy(Images.of(images), sigma=sigma, seed=seed)
        graph = export(frozen(network), noisy[:2])
    with tempfile.TemporaryDirectory() as folder, silence():
        return QuantizedNetwork(_quantised(graph, noisy, Path(folder)))


def _noisy(images: Images, *, sigma: float, seed: int) -> Tensor:
    chosen = np.unique(np.linspace(0, len(images) - 1, min(IMAGES, len(images))).astype(int))
    pixels = as_floats(images.pixels[torch.from_numpy(chosen)])
    source = torch.Generator().manual_seed(seed)
    return pixels + sigma * torch.randn(pixels.shape, generator=source)


def _quantised(graph: bytes, noisy: Tensor, folder: Path) -> bytes:
    try:
        import onnxruntime
        from onnxruntime import quantization
    except ImportError:
        raise InputError(
            "precision='int8' needs ONNX Runtime, which is not installed: pip install 'aces[onnx]'"
        ) from None
    folded, result = folder / "folded.onnx", folder / "int8.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Batch norm goes into the convolutions before their weights are rounded.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    (name,) = [value.name for value in session.get_inputs()]
    quantization.quantize_static(
        str(folded),
        str(result),
        _reader(quantization, name, noisy),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return result.read_bytes()


def _reader(quantization, name: str, noisy: Tensor):
    """The calibration images, as ONNX Runtime asks for them."""

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._batches: Iterator[Tensor] = iter(noisy.split(BATCH))

        def get_next(self) -> dict | None:
            batch = next(self._batches, None)
            return None if batch is None else {name: batch.numpy()}

    return Reader()
