"""TorchScript and ONNX files as networks: run, saved, loaded; refused if they touch files."""

import copy
import json
import pickle
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from aces import cli, data, networks, params
from aces.data import EvalSet
from aces.errors import InputError
from aces.networks import programs
from aces.networks.programs import OnnxProgram, ScriptProgram

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def digits() -> EvalSet:
    return data.prepare(params.Dataset(name="digits", stride=1)).evaluation


@pytest.fixture
def network() -> nn.Module:
    """Answers by the place of the brightest pixel, times 9; sees pixels, not normalised ones."""
    linear = nn.Linear(64, 10)
    return nn.Sequential(nn.Flatten(), linear).eval()


def write_onnx(network: nn.Module, path: str, *, batch: int | None = None) -> None:
    """ONNX by hand: a matrix and a bias, for batches of any size or of a fixed one."""
    linear = network[1]
    weight, bias = (tensor.detach().numpy() for tensor in (linear.weight, linear.bias))
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", number, [batch or "n", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", number, [batch or "n", 10])],
        [
            onnx.numpy_helper.from_array(weight, "weight"),
            onnx.numpy_helper.from_array(bias, "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def write_script(network: nn.Module, path: str) -> None:
    torch.jit.save(torch.jit.trace(network, torch.zeros(2, 1, 8, 8)), path)


@pytest.mark.parametrize("kind", ["onnx", "onnx of batches of 4", "torchscript"])
def test_a_program_is_imported_run_saved_and_loaded(kind, network, digits):
    path = "a.pt" if kind == "torchscript" else "a.onnx"
    if kind == "torchscript":
        write_script(network, path)
    else:
        write_onnx(network, path, batch=4 if "4" in kind else None)
    found = networks.import_checkpoint(path, dataset="digits", mean=[0.1], std=[0.5])
    x = torch.rand(7, 1, 8, 8)
    torch.testing.assert_close(found.module(x), network((x - 0.1) / 0.5))
    networks.save_model("a.safetensors", found.module, **found.module.recipe)
    again = networks.load_model("a.safetensors")
    assert torch.equal(again(x), found.module(x))
    assert networks.fingerprint(again) == networks.fingerprint(found.module)
    assert networks.identity(again) == networks.identity(found.module)
    for copied in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert torch.equal(copied(x), again(x))


def test_the_command_tries_normalisations_on_a_program(network, digits, capsys):
    data.write_eval("data/digits/eval.npz", digits)
    write_onnx(network, "a.onnx")
    assert cli.main(["import", "a.onnx", "--dataset", "digits", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["arch"] == "onnx" and len(found["evidence"]) == 4


class Reads(nn.Module):
    def forward(self, x):
        secret = torch.from_file("secret", size=10)
        return x.flatten(1)[:, :10] + secret


def test_torchscript_that_reads_files_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(Reads()), "a.pt")
    (tmp_path / "secret").write_bytes(bytes(40))
    with pytest.raises(InputError, match="its code calls torch.from_file, which is no operation"):
        networks.import_checkpoint("a.pt", dataset="digits")


def test_onnx_that_reads_other_files_is_refused(network):
    write_onnx(network, "a.onnx")
    model = onnx.load("a.onnx")
    onnx.save(model, "b.onnx", save_as_external_data=True, size_threshold=0)
    with pytest.raises(InputError, match="its weights are in other files"):
        networks.import_checkpoint("b.onnx", dataset="digits")


@pytest.mark.parametrize("name", ["a.onnx", "a.pt"])
def test_damaged_programs_are_one_line(name, network):
    (write_onnx if name == "a.onnx" else write_script)(network, name)
    with open(name, "rb") as file:
        content = file.read()
    for cut in (0, 10, len(content) // 2):
        with open(name, "wb") as file:
            file.write(content[:cut])
        with pytest.raises(InputError) as caught:
            networks.import_checkpoint(name, dataset="digits")
        assert "\n" not in str(caught.value)


def test_a_program_for_other_images_or_classes_is_refused(network):
    write_onnx(network, "a.onnx")
    with pytest.raises(InputError, match=r"cannot run images of shape \(3, 32, 32\)"):
        networks.import_checkpoint("a.onnx", dataset="cifar10")
    with pytest.raises(InputError, match=r"gives \(2, 10\) for 2 images: expected .* \(2, 7\)"):
        networks.import_checkpoint("a.onnx", dataset="digits", num_classes=7)


def test_programs_are_told_from_weights(network):
    torch.save(network.state_dict(), "weights.pt")
    write_script(network, "script.pt")

    assert not programs.is_program(Path("weights.pt"))
    assert programs.is_program(Path("script.pt"))
    assert isinstance(programs.read(Path("script.pt")), ScriptProgram)
    write_onnx(network, "a.onnx")
    assert isinstance(programs.read(Path("a.onnx")), OnnxProgram)
