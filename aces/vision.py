"""torchvision, also beside a CPU build of torch: `from aces.vision import torchvision`.

The registry's torchvision is built for CUDA. Beside a CPU torch its compiled operators do not load,
and its import fails at the first one it wants to extend. Only detection networks ever call them, so
declaring their schemas lets models, datasets and transforms work. Where the import succeeds nothing
is done.
"""

import importlib
import sys
from types import ModuleType

import torch

_OPERATORS = ("torchvision::nms", "torchvision::qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def _import_torchvision() -> ModuleType:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # left half imported by the failure
    for operator in _OPERATORS:
        torch.library.define(operator, _SCHEMA)
    return importlib.import_module("torchvision")


torchvision = _import_torchvision()
