"""models/deployed: the int8 network that is loaded is the one that was sampled, byte for byte."""

import json
import random
import shutil
from pathlib import Path

from aces import paths
from aces.files import digest, write_json
from aces.networks.quantized import load_deployed, load_quantized

from .damage import ODD_TEXTS, damaged_bytes
from .engine import expect


class Deployed:
    name = "deployed"

    def prepare(self, folder: Path) -> None:
        import odd_networks
        from aces.sampling import quantise

        images = odd_networks.images(16, seed=3)
        self._sound, self._graph = folder / "sound", []
        for seed in (0, 1):  # the second is as sound, and of another run
            network = quantise(odd_networks.convolutional(), images, sigma=0.25 + seed)
            self._graph.append(network.onnx)
        path = self._sound / paths.DEPLOYED_GRAPH
        path.parent.mkdir(parents=True)
        path.write_bytes(self._graph[0])
        write_json(self._sound / paths.DEPLOYED_ABOUT, {"sha256": digest(path)})

    def run(self, rng: random.Random, folder: Path) -> str:
        run = folder / "run"
        shutil.copytree(self._sound, run)
        graph, about = run / paths.DEPLOYED_GRAPH, run / paths.DEPLOYED_ABOUT
        kind = rng.randrange(5)
        if kind == 0:
            graph.write_bytes(self._graph[1])
        elif kind == 1:
            graph.write_bytes(damaged_bytes(graph.read_bytes(), rng))
        elif kind == 2:
            about.write_bytes(damaged_bytes(about.read_bytes(), rng))
        elif kind == 3:
            about.write_text(json.dumps(rng.choice(({}, [], {"sha256": rng.choice(ODD_TEXTS)}))))
        else:
            rng.choice((graph, about)).unlink()
        if rng.random() < 0.3:  # as a part of a saved model, whose description has the fingerprint
            load_quantized(graph)
            return "accepted"
        expect(load_deployed(run).onnx == self._graph[0], "it is another network")
        return "accepted"
