"""Networks and denoisers that cannot be used: one line that says what was expected."""

import io
import json
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from torch import nn

from aces import networks
from aces.data import Info
from aces.errors import InputError
from aces.networks import programs, quantized, reading
from aces.networks.denoise import OneStepDiffusion
from published import save

TINY = {"mean": (0.3,), "std": (0.4,)}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return networks.build("tiny", num_classes=10, **TINY).network.state_dict()


def refused(message: str, function, *args, **options) -> None:
    with pytest.raises(InputError, match=message) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)


# --- normalisations ---


def dataset(mean, std) -> Info:
    return Info(name="own", classes=list("0123456789"), shape=(len(mean), 8, 8), mean=mean, std=std)


def test_a_normalisation_for_other_images_is_refused(state):
    said = "normalization='imagenet' is not for these images: expected one of auto, full, center"
    path = save(state)
    refused(said, networks.load_checkpoint, path, dataset="digits", normalization="imagenet")


@pytest.mark.parametrize(
    "asked, mean, std",
    [
        ("imagenet", *IMAGENET),
        ("none", (0.0,) * 3, (1.0,) * 3),
        ("half", (0.5,) * 3, (0.5,) * 3),
        ("full", (0.5,) * 3, (0.5,) * 3),
    ],
)
def test_a_normalisation_that_is_also_the_dataset_s_own_is_taken_by_its_name(asked, mean, std):
    module = networks.build("tiny", num_classes=10, mean=mean, std=std)
    path = save(module.network.state_dict())
    found = networks.import_checkpoint(path, dataset=dataset(mean, std), normalization=asked)
    assert (found.normalization, found.mean, found.std) == (asked, mean, std)


@pytest.mark.parametrize("mean, std, expected", [(*IMAGENET, "imagenet"), ((0.3,), (0.4,), "full")])
def test_akamaster_s_normalisation_is_proposed_where_the_images_have_colours(mean, std, expected):
    """With one channel ImageNet's does not fit, and with its own images it is the usual one."""
    module = networks.build("cifar_resnet20", num_classes=10, mean=mean, std=std)
    names = {"fc.weight": "linear.weight", "fc.bias": "linear.bias"}
    tree = {
        "state_dict": {
            f"module.{names.get(name, name)}": tensor
            for name, tensor in module.network.state_dict().items()
        },
        "best_prec1": 90.0,
    }
    found = networks.import_checkpoint(save(tree), dataset=dataset(mean, std))
    assert (found.normalization, found.mean, found.std) == (expected, mean, std)


# --- files of weights ---


def test_a_counter_of_another_shape_is_one_line(state):
    """Batch counters are not needed to recognise a network."""
    path = save(state | {"stem.1.num_batches_tracked": torch.zeros(3, dtype=torch.long)})
    said = "^checkpoint .* does not fit the network tiny .*size mismatch.*: get it again, or name"
    refused(said, networks.load_checkpoint, path, dataset="digits")


def test_an_archive_that_cannot_be_listed_is_damaged(state):
    """One byte: the version that it takes to unpack an entry."""
    path = save(state)
    content = bytearray(path.read_bytes())
    content[content.rfind(b"PK\x01\x02") + 6] = 99
    path.write_bytes(content)
    said = r"is damaged or truncated \(zip file version 9.9\): get it again"
    refused(said, networks.load_checkpoint, path, dataset="digits")


def test_weights_and_biases_in_another_order_are_not_mixed_up(state):
    """The names of this file tell nothing, so the order of its tensors has to."""
    names = [name for name in state if not name.endswith(reading.COUNTER)]
    plain = {f"{place}.{name.rpartition('.')[2]}": state[name] for place, name in enumerate(names)}
    found = networks.import_checkpoint(save(plain), dataset="digits", arch="tiny")
    assert "the same shapes in the same order" in " ".join(found.notes)
    place = names.index("stem.1.weight")
    names[place : place + 2] = reversed(names[place : place + 2])
    mixed = {f"{place}.{name.rpartition('.')[2]}": state[name] for place, name in enumerate(names)}
    path = save(mixed)
    refused("does not fit tiny", networks.load_checkpoint, path, dataset="digits", arch="tiny")


@pytest.mark.parametrize("name", ["mean", ".weight"])
def test_a_file_without_a_network_is_refused(name):
    """Nothing but a normalisation, and a tensor of no layer: there is no prefix to take away."""
    path = save({name: torch.full((1,), 0.5), "std" if name == "mean" else ".bias": torch.ones(1)})
    refused(
        "does not say which network|has no linear", networks.load_checkpoint, path, dataset="digits"
    )


def test_a_file_of_another_project_is_named(state):
    safetensors.torch.save_file(state, "a.safetensors")
    said = "a.safetensors is a safetensors file of another project: convert it with `aces import`"
    refused(said, networks.load_model, "a.safetensors")
    refused(said, networks.read_metadata, "a.safetensors")


def header_of(**about: object) -> None:
    """A file with one tensor, and with this header of ours."""
    metadata = {reading.OWN_HEADER: json.dumps(about)}
    safetensors.torch.save_file({"a": torch.zeros(1)}, "a.safetensors", metadata=metadata)


def test_a_header_whose_values_are_no_text_is_damaged():
    header_of(kind="denoiser", arch=7, channels="3", options="{}")
    refused("has a damaged header", networks.load_denoiser, "a.safetensors")
    header_of(arch=7, num_classes="10", mean="[0.3]", std="[0.4]")
    refused("has a damaged header: train or import", networks.read_metadata, "a.safetensors")


def test_a_header_that_describes_no_network_is_damaged():
    options = json.dumps({"size": 8, "network": {}})  # a network at a size of its own, of nothing
    header_of(arch="resized", num_classes="10", mean="[0.3]", std="[0.4]", options=options)
    said = r"^a.safetensors has a damaged header \(build.*: train or import the network again"
    refused(said, networks.load_model, "a.safetensors")


# --- denoisers ---


@pytest.mark.parametrize(
    "arch, options, message",
    [
        ("ffdnet", {"width": 0}, "ffdnet: width=0: expected a whole number from 1 to 4096"),
        ("ffdnet", {"width": 4097}, "ffdnet: width=4097: expected a whole number from 1 to 4096"),
        ("dncnn", {"depth": 1}, "dncnn: depth=1: expected a whole number from 2 to 1000"),
        ("dncnn", {"depth": 1001}, "dncnn: depth=1001: expected a whole number from 2 to 1000"),
        ("small-denoiser", {"width": "48"}, "width='48': expected a whole number"),
        ("small-denoiser", {"depth": None}, "depth=None: expected a whole number"),
        ("ffdnet", {"widht": 48}, "has no option 'widht': expected width, depth"),
        ("dncnn", {"biases": [True]}, r"biases=\[True\]: expected a list of three"),
        ("dncnn", {"biases": 3}, "biases=3: expected a list of three"),
    ],
)
def test_options_that_make_no_denoiser_are_refused(arch, options, message):
    refused(f"^denoiser .*{message}", networks.build_denoiser, arch, channels=3, options=options)


def test_a_denoiser_of_ones_own_that_fails_is_one_line(monkeypatch):
    def fails(channels):
        raise RuntimeError("no such thing\nat all")

    def says(channels):
        raise InputError("set ALPHA")

    module = types.SimpleNamespace(fails=fails, says=says)
    monkeypatch.setitem(sys.modules, "my_denoisers", module)
    said = (
        r"denoiser.arch='my_denoisers:fails' failed \(RuntimeError: no such thing\): expected a "
        "function that takes channels"
    )
    refused(said, networks.build_denoiser, "my_denoisers:fails", channels=3)
    refused("^set ALPHA$", networks.build_denoiser, "my_denoisers:says", channels=3)


@pytest.mark.parametrize("alphas", [[[0.5, 0.4]], 0.5, []])
def test_levels_of_a_diffusion_are_a_list(alphas):
    refused("alphas_cumprod of shape .*: expected a list", OneStepDiffusion, nn.Identity(), alphas)


def chain(*kernels: int) -> dict[str, torch.Tensor]:
    """Convolutions of these sizes, one after another: three channels, four, ..., three."""
    widths = [3, *[4] * (len(kernels) - 1), 3]
    return {
        f"{place}.weight": torch.ones(widths[place + 1], widths[place], kernel, kernel)
        for place, kernel in enumerate(kernels)
    }


def test_convolutions_of_other_sizes_are_no_denoiser_that_is_known():
    assert networks.load_denoiser(save(chain(3, 3, 3, 3))).recipe["arch"] == "dncnn"
    said = "is no denoiser that is known: expected an FFDNet, a DnCNN, or a file of `aces import`"
    for kernels in ((3, 5, 3, 3), (5, 5, 5), (3, 3)):
        refused(said, networks.load_denoiser, save(chain(*kernels)))
    with_last = chain(3, 3, 3, 3) | {"fc.weight": torch.ones(10, 3)}
    refused(said, networks.load_denoiser, save(with_last))
    with_another = chain(3, 3, 3, 3) | {"slope.alpha": torch.ones(4)}
    refused(said, networks.load_denoiser, save(with_another))


# --- programs ---


class Answers(nn.Module):
    """Gives what it is told to, whatever the images are."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        logits = x.flatten(1)[:, :10]
        return {
            "a pair": (logits, logits),
            "NaN": logits * float("nan"),
            "infinite": logits / 0,
            "logits": logits,
        }[self.kind]


def script(kind: str) -> Path:
    torch.jit.save(torch.jit.trace(Answers(kind), torch.ones(2, 1, 8, 8)), "a.pt")
    return Path("a.pt")


@pytest.mark.parametrize(
    "kind, message",
    [
        ("a pair", r"a.pt gives tuple for 2 images: expected logits of shape \(2, 10\)"),
        ("NaN", "a.pt gives NaN or infinite logits: is the file whole"),
        ("infinite", "a.pt gives NaN or infinite logits: is the file whole"),
    ],
)
def test_programs_whose_answers_are_no_logits_are_refused(kind, message):
    refused(message, networks.import_checkpoint, script(kind), dataset="digits")


def test_a_program_that_is_refused_is_named():
    """Code that torch itself would never write into a network."""
    path, whole = Path("b.pt"), script("logits").read_bytes()
    with (
        zipfile.ZipFile(io.BytesIO(whole)) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target,
    ):
        for entry in source.namelist():
            code = b"torch.from_file()" if entry.endswith(".py") else source.read(entry)
            target.writestr(entry, code)
    said = "^checkpoint b.pt is refused: its code calls torch.from_file, which is no operation"
    refused(said, programs.read, path)


def onnx_bytes() -> bytes:
    number = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Flatten", ["x"], ["y"])],
        "flat",
        [onnx.helper.make_tensor_value_info("x", number, ["n", 1, 2, 5])],
        [onnx.helper.make_tensor_value_info("y", number, ["n", 10])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def test_onnxruntime_is_optional(monkeypatch):
    Path("a.onnx").write_bytes(onnx_bytes())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = "a.onnx is refused: it is an ONNX program, which needs onnxruntime: `pip install onnxrun"
    refused(said, programs.read, Path("a.onnx"))
    said = (
        r"^an int8 network needs ONNX Runtime, which is not installed: pip install 'aces\[onnx\]'$"
    )
    refused(said, quantized.load_quantized, "a.onnx")


# --- networks by name ---


class Wide(nn.Module):
    """For images of 8x8 pixels."""

    def __init__(self, num_classes: int, channels: int):
        super().__init__()
        self.last = nn.Linear(64 * channels, num_classes)

    def forward(self, x):
        return self.last(x.flatten(1))


class Looks(Wide):
    """Decides by a value, so that it has to be computed to know what it does."""

    def forward(self, x):
        return super().forward(x / 2 if x.max() > 1 else x)


class Numpy(Wide):
    """Leaves torch on the way."""

    def forward(self, x):
        return super().forward(torch.from_numpy(np.sqrt(x.numpy())))


@pytest.mark.parametrize("kind", [Wide, Looks, Numpy])
def test_networks_that_have_to_be_computed_are_tried_too(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_odd", types.SimpleNamespace(build=kind))
    networks.check_arch("my_odd:build", num_classes=4, shape=(1, 8, 8))
    said = r"arch='my_odd:build' does not take images of shape \(1, 9, 9\): .*; choose another"
    refused(said, networks.check_arch, "my_odd:build", num_classes=4, shape=(1, 9, 9))


def test_a_name_that_is_none_is_said_before_images_are_tried():
    refused(
        "arch='resnet5' is unknown", networks.check_arch, "resnet5", num_classes=4, shape=(3, 8, 8)
    )
