"""int8: the network that is certified is the quantised one, the same bytes however it is drawn."""

import copy
import functools
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import odd_networks
from aces import ACES, networks
from aces.errors import InputError
from aces.model.answers import generator_of
from aces.networks.quantized import QuantizedNetwork, load_quantized
from aces.rule.counts import Round, write_counts
from aces.sampling import forward, quantise
from sampled import sample

pytestmark = pytest.mark.slow

SETTINGS = dict(
    sigma=0.25, num_classes=odd_networks.CLASSES, n0=30, n=400, seed=5, chunk=70, device="cpu"
)
FLOAT = odd_networks.convolutional()


@functools.cache
def quantised() -> QuantizedNetwork:
    return quantise(FLOAT, odd_networks.images(64, seed=3), sigma=0.25)


def draw(network=None, **changes):
    network = quantised() if network is None else network
    return sample(network, odd_networks.images(3), **SETTINGS | {"precision": "int8"} | changes)


@pytest.fixture(params=["onnxruntime", "openvino"])
def engine(request, monkeypatch) -> str:
    """What runs int8 networks, each in its turn."""
    if request.param == "openvino":
        pytest.importorskip("openvino")
    monkeypatch.setattr(forward, "is_installed", lambda extra: extra == request.param)
    return request.param


def written(folder, counts) -> bytes:
    write_counts(folder / "counts.npz", counts)
    return (folder / "counts.npz").read_bytes()


@torch.inference_mode()
def test_it_computes_nearly_the_same():
    x = odd_networks.images(50, seed=4).float() / 255
    x = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    given, found = FLOAT(x), quantised()(x)
    assert not torch.equal(given, found)
    assert (given.argmax(dim=1) == found.argmax(dim=1)).float().mean() > 0.9
    assert (given - found).abs().max() < 0.1 * given.abs().max()


def test_counts_name_the_int8_network_and_are_near_those_of_float32(engine):
    counts, full = draw(copy.deepcopy(quantised())), draw(FLOAT, precision="float32")
    assert counts.settings.precision == "int8"
    assert counts.settings.model == networks.fingerprint(quantised()) != full.settings.model
    assert counts.settings.backend.startswith(f"{engine} ")
    assert generator_of(counts.settings) == generator_of(full.settings)
    np.testing.assert_allclose(counts.classes[Round.BOUND], full.classes[Round.BOUND], atol=60)


def test_workers_and_scratch_do_not_change_a_byte(tmp_path, engine):
    network = copy.deepcopy(quantised())
    expected = written(tmp_path, draw(network, workers=1))
    assert written(tmp_path, draw(network, workers=2, scratch=tmp_path / "scratch")) == expected
    (log,) = tmp_path.glob("scratch/*/units.log")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[::2]))
    assert written(tmp_path, draw(network, workers=2, scratch=tmp_path / "scratch")) == expected
    assert written(tmp_path, draw(copy.deepcopy(quantised()))) == expected


def test_a_network_that_openvino_cannot_run_is_run_by_onnx_runtime(capsys):
    """It does not know determinants: here of the three channels, as logits of three classes."""
    pytest.importorskip("openvino")
    value = functools.partial(onnx.helper.make_tensor_value_info, elem_type=1)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Det", ["x"], ["y"])],
        "determinants",
        [value("x", shape=["N", 3, 2, 2])],
        [value("y", shape=["N", 3])],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8
    )
    network = QuantizedNetwork(model.SerializeToString())
    images = odd_networks.images(2)[:, :, :2, :2]
    counts = sample(network, images, **SETTINGS | {"precision": "int8", "num_classes": 3})
    assert counts.settings.backend.startswith("onnxruntime ")
    assert "No conversion rule found for operations: Det" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_network_that_openvino_runs_otherwise_is_run_by_onnx_runtime(capsys, monkeypatch):
    pytest.importorskip("openvino")
    real = forward.CompiledGraph.__call__
    monkeypatch.setattr(
        forward.CompiledGraph, "__call__", lambda *given: [-each for each in real(*given)]
    )
    counts = draw(copy.deepcopy(quantised()))
    assert counts.settings.backend.startswith("onnxruntime ")
    assert "than OpenVINO would (its logits differ)" in " ".join(capsys.readouterr().err.split())


def test_another_cpu_has_its_own_folder(tmp_path, monkeypatch):
    draw(scratch=tmp_path)
    monkeypatch.setattr(forward, "cpu_kind", lambda: "AVX2")
    draw(copy.deepcopy(quantised()), scratch=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_it_is_saved_and_loaded(tmp_path):
    path = tmp_path / "network.onnx"
    quantised().save(path)
    again = load_quantized(path)
    assert networks.fingerprint(again) == networks.fingerprint(quantised())
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match="is not an ONNX network"):
        load_quantized(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_quantized(tmp_path / "missing.onnx")


def test_its_file_does_not_tell_where_the_code_lies():
    """Else a clone in another folder would have another hash, and so other noise."""
    network = networks.build("tiny", num_classes=10, mean=(0.5,) * 3, std=(0.5,) * 3).eval()
    graph = quantise(network, odd_networks.images(32, seed=3), sigma=0.25).onnx
    for place in (Path(networks.__file__).parents[2], Path(torch.__file__).parents[1]):
        assert str(place).encode() not in graph
    assert b"File " not in graph  # of a stack trace


def test_all_layers_but_the_first_and_the_last_are_in_int8():
    graph = onnx.load_from_string(quantised().onnx).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    layers = [node for node in graph.node if node.op_type in ("Conv", "Gemm")]
    rounded = [made_by.get(node.input[1]) == "DequantizeLinear" for node in layers]
    assert len(layers) > 2
    assert rounded == [False] + [True] * (len(layers) - 2) + [False]


def test_a_single_extreme_image_does_not_make_the_ranges_coarse():
    """One image of 512, brighter than any, is in one batch of eight."""
    images = odd_networks.images(512, seed=3).float() / 255 * 0.5
    bright = images.clone()
    bright[7] *= 2

    def widest(given: torch.Tensor) -> float:
        graph = onnx.load_from_string(quantise(FLOAT, given, sigma=0.05).onnx).graph
        constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        scales = [n.input[1] for n in graph.node if n.op_type == "QuantizeLinear"]
        return max(float(constants[name]) for name in scales)

    plain, stretched = widest(images), widest(bright)
    extreme = widest(torch.cat([bright[7:8]] * 64))
    assert plain < stretched < plain + (extreme - plain) / 4


def test_the_last_layer_is_fitted_to_the_logits_of_float32(monkeypatch):
    x = odd_networks.images(400, seed=9).float() / 255
    x = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))

    @torch.inference_mode()
    def error(network: QuantizedNetwork) -> float:
        return (FLOAT(x) - network(x)).square().mean().item()

    fitted = error(quantise(FLOAT, odd_networks.images(1024, seed=3), sigma=0.25))
    monkeypatch.setattr(sys.modules["aces.sampling.quantise"], "RIDGE", 1e12)  # held in its place
    assert fitted < error(quantise(FLOAT, odd_networks.images(1024, seed=3), sigma=0.25))


def test_a_model_with_it_is_saved_and_loaded(tmp_path):
    model = ACES(
        core=networks.build(
            "tiny", num_classes=odd_networks.CLASSES, mean=(0.5,) * 3, std=(0.5,) * 3
        ),
        certify=quantised(),
        sigma=0.25,
        theta=0.5,
        num_classes=odd_networks.CLASSES,
        precision="int8",
    )
    model.save(tmp_path / "model")
    again = ACES.load(tmp_path / "model")
    x = odd_networks.images(2)
    assert again.certify(x, n=200, seed=1) == model.certify(x, n=200, seed=1)
    (tmp_path / "model/certify.onnx").write_bytes(quantise_otherwise().onnx)
    with pytest.raises(InputError, match="is not the network that aces.yaml describes"):
        ACES.load(tmp_path / "model")


def quantise_otherwise() -> QuantizedNetwork:
    return quantise(FLOAT, odd_networks.images(64, seed=3), sigma=0.5)


def test_a_selection_network_stays_float32(engine):
    select = odd_networks.convolutional(outputs=2)
    network = copy.deepcopy(quantised())
    counts, plain = draw(network, select=select), draw(network)
    assert counts.settings.backend.startswith(f"{engine} ")
    assert counts.settings.score == "network"
    np.testing.assert_allclose(
        counts.classes[Round.BOUND], plain.classes[Round.BOUND], atol=60
    )  # other noise: it is keyed by both networks


def test_quantising_is_repeatable_and_leaves_int8_alone():
    again = quantise(FLOAT, odd_networks.images(64, seed=3), sigma=0.25)
    assert networks.fingerprint(again) == networks.fingerprint(quantised())
    assert quantise(again, odd_networks.images(2), sigma=0.5) is again


@pytest.mark.parametrize(
    "network, precision, message",
    [
        ("float", "int8", "make it int8 first, by aces.sampling.quantise"),
        ("int8", "float32", "expected precision='int8'"),
    ],
)
def test_the_plan_and_the_network_must_agree(network, precision, message):
    with pytest.raises(InputError, match=message):
        draw(FLOAT if network == "float" else quantised(), precision=precision)
