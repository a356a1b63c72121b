"""params.yaml: whatever a person, an editor or a program may leave there."""

import json
import random
from pathlib import Path

import yaml

from aces import params

from .damage import ODD_NUMBERS, ODD_TEXTS, damaged_bytes
from .engine import expect

PROFILES = Path(__file__).parent.parent.parent / "profiles"


class Parameters:
    name = "parameters"

    def prepare(self, folder: Path) -> None:
        self._texts = [path.read_text() for path in sorted(PROFILES.glob("*.yaml"))]
        self._trees = [yaml.safe_load(text) for text in self._texts]

    def run(self, rng: random.Random, folder: Path) -> str:
        path = folder / "params.yaml"
        kind = rng.choice((self._value, self._value, self._value, self._lines, self._bytes))
        path.write_bytes(kind(rng))
        loaded = params.load(path)
        # What is accepted can be used: tracked, written and read again, with the same values.
        flat = params.flatten(loaded)
        text = yaml.safe_dump(json.loads(loaded.model_dump_json()))
        expect(params.parse(text) == loaded, "it is not the same after it was written and read")
        expect(all(isinstance(name, str) for name in flat), "a name is no text")
        return "accepted"

    def _value(self, rng: random.Random) -> bytes:
        """One value, or the key itself, replaced by something else."""
        tree = json.loads(json.dumps(rng.choice(self._trees)))
        places = list(_places(tree))
        parent, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0 and isinstance(parent, dict):
            parent[rng.choice((*ODD_TEXTS, 1, None, True))] = parent.pop(key)
        elif kind == 1:
            del parent[key]
        elif kind == 2:
            parent[key] = _nested(rng)
        elif kind == 3:
            other, name = rng.choice(places)
            parent[key] = other[name] if other is not parent else None
        else:
            parent[key] = rng.choice((*ODD_NUMBERS, *ODD_TEXTS, None, True, [], {}, [[]], [None]))
        try:
            return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError):
            return repr(tree).encode()

    def _lines(self, rng: random.Random) -> bytes:
        """Lines lost, doubled, moved, badly indented; anchors that multiply."""
        lines = rng.choice(self._texts).splitlines()
        place = rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            lines.insert(place, lines[place])
        elif kind == 1:
            lines[place] = "  " * rng.randrange(1, 4) + lines[place]
        elif kind == 2:
            del lines[place : place + rng.randrange(1, 5)]
        elif kind == 3:
            lines.insert(
                place, rng.choice(("\t", "- ", "? ", ": ", "%YAML 9", "---", "!!python/none"))
            )
        elif kind == 4:
            lines.append("x: " + "[" * rng.choice((10, 100, 5000)))
        else:
            names = [f"a{number}" for number in range(rng.choice((5, 12, 30)))]
            lines.append(f"{names[0]}: &{names[0]} [1, 2, 3, 4, 5, 6, 7, 8, 9]")
            for before, name in zip(names, names[1:], strict=False):
                lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
        return "\n".join(lines).encode()

    def _bytes(self, rng: random.Random) -> bytes:
        return damaged_bytes(rng.choice(self._texts).encode(), rng)


def _places(tree: dict | list) -> list[tuple]:
    """Every (container, key) of a tree."""
    found: list[tuple] = []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        found.append((tree, key))
        if isinstance(value, (dict, list)):
            found += _places(value)
    return found


def _nested(rng: random.Random) -> object:
    value: object = 1
    for _ in range(rng.choice((3, 25, 200))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value
