"""The folder of a saved model: aces.yaml and its networks."""

import random
import shutil
from pathlib import Path

import torch
import yaml

from aces import ACES, networks

from .damage import ODD_NUMBERS, ODD_TEXTS, damaged_bytes
from .engine import expect
from .parameters import _nested, _places

SHAPE = (1, 8, 8)


class Folders:
    name = "folders"

    def prepare(self, folder: Path) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            parts = {
                role: networks.build("tiny", num_classes=3, mean=(0.5,), std=(0.5,)).eval()
                for role in ("core", "certify")
            }
        model = ACES(**parts, sigma=0.5, theta=0.4, num_classes=3, shape=SHAPE)
        self._sound = folder / "sound"
        model.save(self._sound)
        self._expected = {role: networks.fingerprint(it) for role, it in model.networks.items()}
        self._text = (self._sound / "aces.yaml").read_text()

    def run(self, rng: random.Random, folder: Path) -> str:
        saved = folder / "model"
        shutil.copytree(self._sound, saved)
        (saved / "aces.yaml").write_bytes(self._description(rng))
        if rng.random() < 0.2:
            weights = saved / rng.choice(("core.safetensors", "certify.safetensors"))
            weights.write_bytes(damaged_bytes(weights.read_bytes(), rng))
        model = ACES.load(saved)
        found = {role: networks.fingerprint(it) for role, it in model.networks.items()}
        expect(found == self._expected, "a network is not the one that was saved")
        expect(0 <= model.theta <= 1 and model.sigma > 0, f"theta {model.theta}, {model.sigma}")
        return "accepted"

    def _description(self, rng: random.Random) -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return damaged_bytes(self._text.encode(), rng)
        tree = yaml.safe_load(self._text)
        parent, key = rng.choice(_places(tree))
        odd = (*ODD_NUMBERS, *ODD_TEXTS, None, True, [], {}, _nested(rng), ["a"] * 3)
        if kind == 1 and isinstance(parent, dict):
            parent[rng.choice((*ODD_TEXTS, "../../x", 1))] = parent.pop(key)
        elif kind == 2:
            del parent[key]
        else:
            parent[key] = rng.choice(odd)
        try:
            return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError):
            return repr(tree).encode()
