"""Programs in files, TorchScript and ONNX, as torch modules.

The module's state is the file itself, so that such a network is saved, loaded and fingerprinted as
any other. A program is not only weights: it is run. Before it is loaded, its code is checked for
operations that touch files or call back into Python.
"""

import io
import re
import threading
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aces.errors import InputError, one_line
from aces.networks import reading

TORCHSCRIPT, ONNX = "torchscript", "onnx"
# TorchScript spells operations of other libraries `ops.<library>.<name>`.
_FOREIGN = re.compile(rb"\bops\.(?!aten\b|prim\b)(\w+)\.(\w+)")
_FILES = re.compile(rb"\b(?:torch|ops\.aten)\.(from_file|save|load)\b")


# Loaded programs are no part of the modules: a copy loads its own, and whether a program has run
# does not change what it is.
_LOADED: "weakref.WeakKeyDictionary[Program, Any]" = weakref.WeakKeyDictionary()
_LOADING = threading.Lock()


class Program(nn.Module):
    """A network whose state is a file of code and weights; images (N, C, H, W) -> logits (N, K)."""

    arch: str
    program: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("program", torch.zeros(size, dtype=torch.uint8))

    @property
    def options(self) -> dict[str, int]:
        """What `build` needs to make room for the same program."""
        return {"size": self.program.numel()}

    def content(self) -> bytes:
        """The bytes of the file."""
        return self.program.cpu().numpy().tobytes()

    def loaded(self) -> Any:
        """The program, ready to run; loaded when it is first needed."""
        with _LOADING:
            if self not in _LOADED:
                _LOADED[self] = self._load()
            return _LOADED[self]

    def _load(self) -> Any:
        raise NotImplementedError

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        _LOADED.pop(self, None)
        super()._load_from_state_dict(*args, **options)


class ScriptProgram(Program):
    arch = TORCHSCRIPT

    def _load(self) -> Any:
        content = self.content()
        _check_script(content)
        return torch.jit.load(io.BytesIO(content), map_location=self.program.device).eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.loaded()(x)


class OnnxProgram(Program):
    """Run by ONNX Runtime on the CPU, one thread per call."""

    arch = ONNX

    def _load(self) -> Any:
        onnxruntime = _onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        content = self.content()
        _check_onnx(content)
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def forward(self, x: Tensor) -> Tensor:
        session = self.loaded()
        entry = session.get_inputs()[0]
        images = x.detach().cpu().numpy().astype(np.float32)
        step = entry.shape[0] if isinstance(entry.shape[0], int) else len(images)
        parts = [
            _run_padded(session, entry.name, images[start : start + step], step)
            for start in range(0, len(images), step)
        ]
        return torch.from_numpy(np.concatenate(parts)).to(x.device)


def _run_padded(session: Any, name: str, images: np.ndarray, step: int) -> np.ndarray:
    """The logits of a batch, filled up where the program was made for a fixed size of batches."""
    missing = step - len(images)
    batch = np.concatenate([images, np.repeat(images[-1:], missing, 0)]) if missing else images
    return session.run(None, {name: batch})[0][: len(images)]


PROGRAMS: dict[str, type[Program]] = {TORCHSCRIPT: ScriptProgram, ONNX: OnnxProgram}


def is_program(path: Path) -> bool:
    """Whether a file is a TorchScript archive or an ONNX model."""
    if path.suffix.lower() == ".onnx":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except Exception:  # no archive, or a damaged one: the reader of weights says so
        return False


def read(path: Path) -> Program:
    """The program in a file, checked and loaded once."""
    reading.check_sizes(path)
    content = path.read_bytes()
    if not content:
        raise InputError(f"checkpoint {path} is empty: get it again")
    kind = OnnxProgram if path.suffix.lower() == ".onnx" else ScriptProgram
    program = kind(len(content))
    program.program.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    try:
        program.loaded()
    except InputError as error:
        raise InputError(f"checkpoint {path} is refused: {error}") from None
    except (Exception, MemoryError) as error:
        raise InputError(
            f"checkpoint {path} is not a {program.arch} program that can be run "
            f"({one_line(error)}): export it again"
        ) from None
    return program.eval()


@torch.inference_mode()
def check(program: Program, path: Path, *, num_classes: int, shape: tuple[int, int, int]) -> None:
    """InputError unless the program gives `num_classes` finite logits for images of `shape`."""
    try:
        logits = program(torch.full((2, *shape), 0.5))
    except Exception as error:
        raise InputError(
            f"checkpoint {path} cannot run images of shape {shape}: {one_line(error)}; export it "
            "for such images"
        ) from None
    if not isinstance(logits, Tensor) or logits.shape != (2, num_classes):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(
            f"checkpoint {path} gives {found} for 2 images: expected logits of shape (2, "
            f"{num_classes})"
        )
    if not logits.isfinite().all():
        raise InputError(f"checkpoint {path} gives NaN or infinite logits: is the file whole?")


def _check_script(content: bytes) -> None:
    """Refuse TorchScript whose code names operations on files, or of other libraries."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".py"):
                continue
            code = archive.read(entry)
            for pattern in (_FILES, _FOREIGN):
                if match := pattern.search(code):
                    raise InputError(
                        f"its code calls {match[0].decode()}, which is no operation of a network"
                    )


def _check_onnx(content: bytes) -> None:
    """Refuse an ONNX model that reads other files."""
    if b"external_data" not in content and b"location" not in content:
        return
    import onnx
    from onnx.external_data_helper import uses_external_data

    model = onnx.load_model_from_string(content)
    tensors = [*model.graph.initializer]
    tensors += [
        attribute.t
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    if any(uses_external_data(tensor) for tensor in tensors):
        raise InputError("its weights are in other files: export it as one file")


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise InputError(
            "it is an ONNX program, which needs onnxruntime: `pip install onnxruntime`"
        ) from None
    return onnxruntime
