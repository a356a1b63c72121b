"""Bad checkpoints: refused in one line, before memory is taken, and nothing in them runs."""

import io
import json
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

from aces import networks
from aces.errors import InputError
from aces.networks import reading

TINY = {"mean": (0.3,), "std": (0.4,)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return networks.build("tiny", num_classes=10, **TINY).network.state_dict()


def save_own(path: str, **header) -> None:
    """A file of ours, with another header."""
    module = networks.build("tiny", num_classes=10, **TINY)
    about = {"arch": "tiny", "num_classes": "10", "mean": "[0.3]", "std": "[0.4]"} | header
    metadata = {"aces": json.dumps({key: value for key, value in about.items() if value})}
    safetensors.torch.save_file(module.state_dict(), path, metadata=metadata)


# --- weights that are no weights ---

NAME = "blocks.0.conv1.weight"


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda tensor: tensor.to(torch.complex64), r"is complex \(complex64\)"),
        (lambda tensor: tensor.to(torch.int64), r"holds integers \(int64\)"),
        (lambda tensor: tensor.to(torch.bool), r"holds integers \(bool\)"),
        (lambda tensor: tensor * float("nan"), "has values that are NaN or infinite"),
        (lambda tensor: tensor / 0, "has values that are NaN or infinite"),
        (lambda tensor: tensor.double() * 1e300, "has values that are NaN or infinite in float32"),
        (lambda tensor: tensor.to_sparse(), "of layout torch.sparse_coo"),
        (lambda tensor: tensor.to("meta"), r"has no values \(device meta\)"),
        (lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8), "is quantized"),
    ],
)
def test_weights_that_are_none_are_refused_by_name(state, change, problem):
    torch.save(state | {NAME: change(state[NAME])}, "a.pth")
    with pytest.raises(InputError, match=f"the tensor {NAME} .*{problem}") as caught:
        networks.load_checkpoint("a.pth", dataset="digits", arch="tiny")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float64]
)
def test_other_precisions_become_float32(state, dtype):
    converted = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }
    torch.save(converted, "a.pth")
    module = networks.load_checkpoint("a.pth", dataset="digits")
    assert {weight.dtype for weight in module.parameters()} == {torch.float32}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_own_files_are_checked_too(value):
    module = networks.build("tiny", num_classes=10, **TINY)
    module.network.head.bias.data[3] = value
    networks.save_model("a.safetensors", module, **module.recipe)
    with pytest.raises(InputError, match=r"the tensor network.head.bias has values that are NaN"):
        networks.load_model("a.safetensors")


# --- sizes ---


def bomb(path: str, size: int) -> None:
    """A checkpoint whose one tensor of zeros is deflated a thousand times."""
    whole = io.BytesIO()
    torch.save({"a": torch.zeros(4)}, whole)
    with (
        zipfile.ZipFile(whole) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for entry in source.namelist():
            content = bytes(size) if entry.endswith("data/0") else source.read(entry)
            target.writestr(entry, content)


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_memory_is_taken():
    """In a process that may take little more memory than torch itself does."""
    bomb("bomb.pth", 300 * 2**20)
    code = (
        "import resource, sys\n"
        "from aces import networks\n"
        "from aces.errors import InputError\n"
        "taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    networks.load_checkpoint('bomb.pth', dataset='digits')\n"
        "except InputError as error:\n"
        "    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - taken)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, kilobytes = run.stdout.splitlines()
    assert "would unpack to 314,5" in message
    assert int(kilobytes) < 100 * 2**10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_a_tensor_larger_than_its_file_is_refused():
    torch.save({"a": torch.zeros(1).expand(10**9)}, "a.pth")
    with pytest.raises(InputError, match="the tensor a has 1,000,000,000 values, more than a file"):
        networks.load_checkpoint("a.pth", dataset="digits")


@pytest.mark.parametrize("arch", ["cifar_resnet1202-w4096", "denoised", "resnet152", "x:y"])
def test_a_header_that_names_another_network_takes_no_memory(arch):
    save_own("a.safetensors", arch=arch)
    with pytest.raises(InputError) as caught:
        networks.load_model("a.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        {"arch": None},
        {"num_classes": "ten"},
        {"num_classes": "-1"},
        {"num_classes": "1" * 400},
        {"mean": "0.3"},
        {"mean": "[NaN]"},
        {"std": "[0.0]"},
        {"std": "[0.4, 0.4]"},
        {"mean": "[" * 10**5},
        {"options": "[[[1]]]"},
    ],
)
def test_damaged_headers_are_one_line(header):
    save_own("a.safetensors", **header)
    for load in (
        networks.load_model,
        lambda path: networks.load_checkpoint(path, dataset="digits"),
    ):
        try:
            load("a.safetensors")
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert load is not networks.load_model


def test_a_header_that_is_no_json_is_refused(state):
    safetensors.torch.save_file(state, "a.safetensors", metadata={"aces": "{"})
    with pytest.raises(InputError, match="has a damaged header"):
        networks.load_model("a.safetensors")


# --- code ---


class Touch:
    """Unpickling it would run a command."""

    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_refused_and_not_run(zipped):
    torch.save({"state_dict": Touch()}, "a.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="holds more than tensors; nothing of it was run"):
        networks.load_checkpoint("a.pth", dataset="digits")
    Path("b.pth").write_bytes(pickle.dumps(Touch()))
    with pytest.raises(InputError):
        networks.load_checkpoint("b.pth", dataset="digits")
    assert not Path("ran").exists()


def test_sizes_are_checked_before_torch_sees_the_file(monkeypatch):
    bomb("bomb.pth", 2**20)
    monkeypatch.setattr(torch, "load", lambda *args, **options: pytest.fail("torch has read it"))
    with pytest.raises(InputError, match="files of weights do not shrink like that"):
        reading.read_tree(Path("bomb.pth"))
