"""Scratch: whatever lies there, sampling gives the same counts as without it, or refuses."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import torch

from aces import DrawPlan, Runtime, sampling
from aces.files import digest_of
from aces.rule.counts import Counts
from aces.sampling import shards

from .damage import damaged_bytes
from .engine import expect

PLAN = DrawPlan(sigma=0.5, n0=20, n=60, chunk=20)
OTHER = DrawPlan(sigma=0.7, n0=20, n=60, chunk=20)
CLASSES = 3


class Scratch:
    name = "scratch"

    def prepare(self, folder: Path) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self._network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, CLASSES))
        generator = np.random.default_rng(0)
        self._images = generator.integers(0, 256, (2, 4, 4, 1), dtype=np.uint8)
        self._sound, self._foreign = folder / "sound", folder / "foreign"
        self._expected = _content(self._sample(self._sound, PLAN))
        self._sample(self._foreign, OTHER)

    def run(self, rng: random.Random, folder: Path) -> str:
        scratch = folder / "scratch"
        shutil.copytree(self._sound, scratch)
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice((self._lines, self._lines, self._forged, self._files, self._about))(
                rng, scratch
            )
        found = _content(self._sample(scratch, PLAN))
        expect(found == self._expected, "the counts are others than without scratch")
        return "accepted"

    def _sample(self, scratch: Path, plan: DrawPlan) -> Counts:
        runtime = Runtime(device="cpu", workers=1, scratch=scratch, progress=False)
        return sampling.sample(
            self._network, self._images, plan, num_classes=CLASSES, runtime=runtime
        )

    def _log(self, scratch: Path) -> Path:
        return next(scratch.rglob(shards.LOG))

    def _lines(self, rng: random.Random, scratch: Path) -> None:
        """Bytes and lines damaged, lost, doubled, or of another run."""
        log = self._log(scratch)
        lines = log.read_bytes().splitlines(keepends=True)
        kind = rng.randrange(5)
        if kind == 0:
            log.write_bytes(damaged_bytes(log.read_bytes(), rng))
            return
        if kind == 1:
            foreign = self._log(self._foreign).read_bytes().splitlines(keepends=True)
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(foreign))
        elif kind == 2 and lines:
            lines.append(rng.choice(lines))
        elif kind == 3 and lines:
            lines.pop(rng.randrange(len(lines)))
        elif len(lines) > 1:  # the counts of one unit under the key of another
            parts = [line.split() for line in rng.sample(lines, 2)]
            lines.append(b" ".join((parts[0][0], parts[1][1], parts[0][2])) + b"\n")
        log.write_bytes(b"".join(lines))

    def _forged(self, rng: random.Random, scratch: Path) -> None:
        """A line whose checksum is right and whose content is none."""
        log = self._log(scratch)
        lines = log.read_bytes().splitlines()
        key = rng.choice([line.split()[1] for line in lines if len(line.split()) == 3] or [b"x"])
        content = rng.choice(
            (b"", b"!!!", b"AAAA", rng.randbytes(20).hex().encode(), b"eJwDAAAAAAE=", b"a b")
        )
        rest = rng.choice((key, b"\xff\xfe", b"")) + b" " + content + b"\n"
        checksum = shards._checksum(rest, log.parent.name)
        with log.open("ab") as file:
            file.write(checksum + b" " + rest)

    def _files(self, rng: random.Random, scratch: Path) -> None:
        """Files gone, empty, or of another run's folder."""
        folder = self._log(scratch).parent
        kind = rng.randrange(4)
        if kind == 0:
            rng.choice([path for path in folder.iterdir() if path.name != "lock"]).unlink()
            (folder / shards.LOG).touch()
        elif kind == 1:
            (folder / rng.choice(("owner", shards.LOG, "about.json"))).write_bytes(b"")
        elif kind == 2:
            (folder / "owner").write_bytes(rng.randbytes(50))
        else:
            foreign = self._log(self._foreign).parent
            shutil.copytree(foreign, folder, dirs_exist_ok=True)

    def _about(self, rng: random.Random, scratch: Path) -> None:
        about = self._log(scratch).parent / "about.json"
        text = about.read_text(errors="replace") if about.exists() else "{}"
        kind = rng.randrange(3)
        if kind == 0:
            about.write_bytes(damaged_bytes(text.encode(), rng))
            return
        try:
            content = json.loads(text)
        except ValueError:
            content = {}
        if not isinstance(content, dict):
            content = {}
        odd = (None, [], "text", [1, "a"], {}, 5, [[1]], [1e308] * 3, [10**400])
        content[rng.choice(("probe", "probe", "sigma"))] = rng.choice(odd)
        about.write_text(json.dumps(content))


def _content(counts: Counts) -> str:
    arrays = [value for value in vars(counts).values() if isinstance(value, np.ndarray)]
    return digest_of(*arrays, counts.settings)
