"""float32 -> int8: the network in 8-bit whole numbers, calibrated on noisy images.

Static quantisation by ONNX Runtime. Weights have a scale for each output channel. The range of an
activation is fixed beforehand from what noisy images give, so that a draw's logits depend on that
draw alone; it is the mean of the ranges in batches of 64 (16 of large images), since a wider one,
for the most extreme value of all images, would be coarser for all others. Weights use 7 of their 8
bits ("reduced range"): sums of two products then fit in the 16 bits in which processors without
VNNI form them, and no sum is cut off.

The first convolution and a linear layer at the end stay in float32. The first one has few channels,
which int8 kernels handle badly: so the small network is a tenth faster. The last one is fitted
again: from what the 8-bit layers give, it shall come as close as it can to the logits of the
network that was given. How weights are rounded, and how finely sums are, is in `rounding`. Measured
on the default network, the class of 99.3 % of the draws stays: 98.9 % with the widest ranges and a
first layer of 8 bits, 99.1 % with weights rounded to the nearest number.

The result is another network than the one that was given, with its own hash. It is the one that is
certified.
"""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError
from aces.networks.quantized import QuantizedNetwork
from aces.sampling import rounding
from aces.sampling.export import export, frozen, silence
from aces.sampling.images import Images, as_floats

IMAGES, PIXELS = 1024, 2**25  # noisy images that calibrate, at most; and pixels of all of them
BATCH, LARGE_BATCH, SMALL = 64, 16, 3 * 64 * 64  # images up to SMALL values come in large batches
MOST_WEIGHT = 64  # the largest weight in the reduced range
PIXELS_ROUNDING, LEAST_ROUNDING = 2**19, 32  # of the images that weights are rounded for
BATCH_ROUNDING = 8
RIDGE = 0.1  # how much the last layer is held back when it is fitted, in mean squared features


def quantise(
    network: nn.Module, images: np.ndarray | Tensor | Images, *, sigma: float, seed: int = 0
) -> QuantizedNetwork:
    """The network in int8.

    images: training images, as of `aces.sampling.sample`; at most 1024 of them are used, evenly
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
    most = max(BATCH, min(IMAGES, PIXELS // math.prod(images.shape)))
    chosen = np.unique(np.linspace(0, len(images) - 1, min(most, len(images))).astype(int))
    pixels = as_floats(images.pixels[torch.from_numpy(chosen)])
    source = torch.Generator().manual_seed(seed)
    return pixels + sigma * torch.randn(pixels.shape, generator=source)


def _quantised(exported: bytes, noisy: Tensor, folder: Path) -> bytes:
    try:
        import onnx
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
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    (name,) = [value.name for value in session.get_inputs()]
    graph = onnx.load(folded)
    head = _head(graph)
    quantization.quantize_static(
        str(folded),
        str(result),
        _reader(quantization, name, noisy),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=[node.name for node in (_first(graph), head) if node is not None],
        extra_options={"CalibMovingAverage": True},
    )
    model = onnx.load(result)
    rounding.narrow_sums(model)
    some = noisy[: max(LEAST_ROUNDING, PIXELS_ROUNDING // noisy[0].numel())]
    rounding.round_weights(model, graph, some, most=MOST_WEIGHT, batch=BATCH_ROUNDING)
    if head is not None:
        _fit(model, _run(session, name, noisy), name, noisy)
    return model.SerializeToString()


def _first(model: Any) -> Any:
    """The first convolution of an ONNX model; None where there is none."""
    return next((node for node in model.graph.node if node.op_type == "Conv"), None)


def _head(model: Any) -> Any:
    """The linear layer that gives the logits, of an ONNX model; None where there is none."""
    constants = {constant.name for constant in model.graph.initializer}
    (output,) = [value.name for value in model.graph.output]
    for node in model.graph.node:
        if node.op_type == "Gemm" and output in node.output and len(node.input) == 3:
            plain = {it.name: it.i or it.f for it in node.attribute}
            if (
                {*node.input[1:]} <= constants
                and plain.get("transB", 0) == 1
                and plain.get("transA", 0) == 0
                and plain.get("alpha", 1) == plain.get("beta", 1) == 1
            ):
                return node
    return None


def _fit(model: Any, logits: np.ndarray, name: str, noisy: Tensor) -> None:
    """Change the last layer so that it comes close to these logits (N, K) of the noisy images.

    Least squares with a ridge: layer + change, the change being held back.
    """
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    features, weight, bias = _head(model).input
    told = type(model)()
    told.CopyFrom(model)
    told.graph.output.append(helper.make_tensor_value_info(features, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        told.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = _run(session, name, noisy, output=1).astype(np.float64)
    x = np.column_stack([x, np.ones(len(x))])
    wrong = logits - _run(session, name, noisy)
    squares = x.T @ x / len(x)
    held = RIDGE * squares.diagonal()[:-1].mean()
    squares[np.diag_indices(len(squares) - 1)] += held
    change = np.linalg.solve(squares, x.T @ wrong / len(x)).T
    for constant in model.graph.initializer:
        if constant.name in (weight, bias):
            value = numpy_helper.to_array(constant)
            fitted = value + (change[:, :-1] if constant.name == weight else change[:, -1])
            constant.CopyFrom(
                numpy_helper.from_array(fitted.astype(value.dtype), name=constant.name)
            )


def _run(session: Any, name: str, images: Tensor, *, output: int = 0) -> np.ndarray:
    return np.concatenate(
        [session.run(None, {name: batch.numpy()})[output] for batch in _batches(images)]
    )


def _batches(images: Tensor) -> tuple[Tensor, ...]:
    """Every layer's output of a whole batch is in memory when the ranges are found."""
    return images.split(BATCH if images[0].numel() <= SMALL else LARGE_BATCH)


def _reader(quantization, name: str, noisy: Tensor):
    """The calibration images, as ONNX Runtime asks for them."""

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._batches: Iterator[Tensor] = iter(_batches(noisy))

        def get_next(self) -> dict | None:
            batch = next(self._batches, None)
            return None if batch is None else {name: batch.numpy()}

    return Reader()
