"""Files with weights: of this project, of others, and of people who mean no good."""

import io
import json
import pickle
import random
import zipfile
from pathlib import Path

import safetensors.torch
import torch

from aces import networks
from aces.data import info

from .damage import ODD_NUMBERS, Malicious, damaged_bytes, malicious_pickle
from .engine import expect

ARCH = "tiny"  # the built-in architecture with the fewest weights


class Checkpoints:
    name = "checkpoints"

    def prepare(self, folder: Path) -> None:
        about = info("cifar10")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = networks.build(
                ARCH, num_classes=about.num_classes, mean=about.mean, std=about.std
            )
        path = folder / "sound.safetensors"
        networks.save_model(
            path, network, arch=ARCH, num_classes=10, mean=about.mean, std=about.std
        )
        self._own = path.read_bytes()
        with safetensors.safe_open(path, framework="pt") as file:
            self._header = json.loads(file.metadata()["aces"])
        self._state = safetensors.torch.load(self._own)

    def run(self, rng: random.Random, folder: Path) -> str:
        kind = rng.choice((self._bytes, self._header_values, self._tensors, self._pickle))
        path = folder / rng.choice(("network.safetensors", "network.pth"))
        path.write_bytes(kind(rng))
        if path.suffix == ".safetensors" and rng.random() < 0.5:
            network = networks.load_model(path)
        else:
            network = networks.import_checkpoint(path, dataset="cifar10").module
        for name, tensor in network.state_dict().items():
            expect(not tensor.is_complex(), f"{name} is complex")
            expect(bool(tensor.isfinite().all()), f"{name} has values that are no numbers")
        return "accepted"

    def _bytes(self, rng: random.Random) -> bytes:
        return damaged_bytes(self._own if rng.random() < 0.5 else self._saved(self._state), rng)

    def _header_values(self, rng: random.Random) -> bytes:
        header = dict(self._header)
        key = rng.choice(sorted(header))
        odd = [*map(str, ODD_NUMBERS), "", "[]", "[1,2", "[0,0,0]", "{}", "null", "../x", 3, None]
        if rng.random() < 0.2:
            del header[key]
        else:
            header[key] = rng.choice(odd)
        text = json.dumps(header)
        text = text[: rng.randrange(len(text))] if rng.random() < 0.1 else text
        return safetensors.torch.save(self._state, metadata={"aces": text})

    def _tensors(self, rng: random.Random) -> bytes:
        """Weights of other kinds, shapes and names."""
        state = {name: tensor.clone() for name, tensor in self._state.items()}
        name = rng.choice(sorted(state))
        tensor = state[name]
        changes = (
            lambda: tensor.to(torch.int64),
            lambda: tensor.double(),
            lambda: tensor.double() * 1e300,
            lambda: tensor.half(),
            lambda: tensor.to(torch.float8_e4m3fn),
            lambda: tensor.float() * float("nan"),
            lambda: tensor.float() + float("inf"),
            lambda: tensor.flatten(),
            lambda: tensor[..., None],
            lambda: torch.zeros(0),
            lambda: torch.zeros(()),
            lambda: tensor.bool(),
        )
        kind = rng.randrange(3)
        if kind == 0:
            state[name] = rng.choice(changes)().contiguous()
        elif kind == 1:
            state[rng.choice(("x", "module." + name, ""))] = state.pop(name)
        else:
            state[name] = torch.complex(tensor.float(), tensor.float())
            return self._saved(state)
        if rng.random() < 0.5:
            return self._saved(state)
        return safetensors.torch.save(state, metadata={"aces": json.dumps(self._header)})

    def _pickle(self, rng: random.Random) -> bytes:
        """Pickles of other things, archives that unpack to too much, and code."""
        kind = rng.randrange(6)
        if kind == 0:
            return malicious_pickle()
        if kind == 1:
            return self._saved({"state_dict": self._state, "optimizer": Malicious()})
        if kind == 2:
            return pickle.dumps(rng.choice((None, 1, [], {}, {"state_dict": {}}, "text")))
        if kind == 3:
            return _bomb(rng)
        if kind == 4:
            tree: object = dict(self._state)
            for _ in range(rng.choice((1, 3, 50))):
                tree = {rng.choice(("net", "model", "x")): tree, "epoch": 1}
            return self._saved(tree)
        return self._saved(rng.choice(([1, 2], {"a": 1}, {1: torch.zeros(2)}, torch.zeros(3))))

    def _saved(self, tree: object) -> bytes:
        buffer = io.BytesIO()
        torch.save(tree, buffer)
        return buffer.getvalue()


def _bomb(rng: random.Random) -> bytes:
    """A small archive that claims to hold, or holds, very much."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", malicious_pickle())
        archive.writestr("archive/data/0", bytes(rng.choice((10, 20)) * 2**20))
    return buffer.getvalue()
