"""The engine `ray` on a local Ray of two workers: the bytes of `local`, whatever is lost on the
way.
"""

import os
import signal
import sys

import numpy as np
import pytest
import torch

import odd_networks
from aces.errors import InputError
from aces.sampling import forward
from aces.sampling.drawing import Drawing
from aces.sampling.shards import read_keys
from sampled import SMALL, sample, written

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray")

NETWORK = odd_networks.convolutional()
SETTINGS = SMALL | dict(workers=2)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The workers find the tests' modules as this process does.
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
    )
    yield
    ray.shutdown()


def draw(engine, network=NETWORK, **changes):
    return sample(network, odd_networks.images(3), **SETTINGS | changes, engine=engine)


def test_ray_gives_the_bytes_of_local(tmp_path):
    assert written(tmp_path, draw("ray")) == written(tmp_path, draw("local"))


def test_an_interrupted_driver_goes_on_from_the_shards_on_any_engine(tmp_path, monkeypatch):
    real, added = Drawing._add, []

    def add(self, unit, table):
        if len(added) == 5:
            raise KeyboardInterrupt
        added.append(unit)
        real(self, unit, table)

    monkeypatch.setattr(Drawing, "_add", add)
    with pytest.raises(KeyboardInterrupt):
        draw("ray", scratch=tmp_path / "scratch")
    monkeypatch.setattr(Drawing, "_add", real)
    (folder,) = (tmp_path / "scratch").iterdir()
    assert len(read_keys(folder)) == 6  # the sixth was kept, and not yet added
    expected = written(tmp_path, draw("local"))
    assert written(tmp_path, draw("ray", scratch=tmp_path / "scratch")) == expected
    assert written(tmp_path, draw("local", scratch=tmp_path / "scratch")) == expected


class Deadly(torch.nn.Module):
    """Kills the first worker that runs it; no graph can express that, so torch runs it."""

    def __init__(self, flag):
        super().__init__()
        self.network, self.flag, self.driver = odd_networks.convolutional(), str(flag), os.getpid()

    def forward(self, x):
        if os.getpid() != self.driver and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.cat(
            [
                self.network(image[None]) if image.mean() > -9 else self.network(image[None])
                for image in x
            ]
        )


def test_the_units_of_a_lost_worker_are_done_again(tmp_path):
    network = Deadly(tmp_path / "flag")
    counts = draw("ray", network)
    assert (tmp_path / "flag").exists()
    np.testing.assert_array_equal(counts.draws, [[50] * 3, [400] * 3, [100] * 3])
    np.testing.assert_array_equal(counts.score, draw("local", network).score)


def test_a_node_with_another_environment_refuses(monkeypatch):
    """The driver believes in another version of ONNX Runtime than the workers have."""
    real = forward._version
    monkeypatch.setattr(
        forward, "_version", lambda package: "0.1" if package == "onnxruntime" else real(package)
    )
    with pytest.raises(
        InputError, match=r"would run the network by onnxruntime 1.*, the others by onnxruntime 0.1"
    ):
        draw("ray", odd_networks.convolutional(seed=3))


def test_a_missing_ray_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'aces\[ray\]'"):
        draw("ray")
