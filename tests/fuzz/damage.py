"""Ways to damage bytes, numbers and texts, shared by the targets."""

import pickle
import random
from pathlib import Path

ODD_NUMBERS = (
    0,
    -1,
    1,
    2,
    -(2**63),
    2**31,
    2**63,
    10**309,
    0.5,
    5e-324,
    1e-300,
    1e308,
    -0.0,
    float("inf"),
    float("-inf"),
    float("nan"),
)
ODD_TEXTS = (
    "",
    " ",
    "none",
    "null",
    "~",
    "1e-3",
    "\x00",
    "é",
    "𝔘",
    "../../x",
    "a" * 300,
    "%s",
    "{0}",
)


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flipped, cut, repeated, inserted or foreign bytes."""
    kind = rng.choice(("flip", "flip", "flip", "cut", "repeat", "insert", "zero", "noise", "empty"))
    changed = bytearray(data)
    place = rng.randrange(len(data)) if data else 0
    match kind:
        case "flip":
            for _ in range(rng.choice((1, 2, 10, 100))):
                if changed:
                    changed[rng.randrange(len(changed))] = rng.randrange(256)
        case "cut":
            del changed[place:]
        case "repeat":
            changed[place:place] = changed[place : place + rng.randrange(1, 500)]
        case "insert":
            changed[place:place] = rng.randbytes(rng.randrange(1, 100))
        case "zero":
            length = rng.randrange(1, 200)
            changed[place : place + length] = bytes(min(length, len(changed) - place))
        case "noise":
            return rng.randbytes(rng.choice((1, 10, 1000)))
        case "empty":
            return b""
    return bytes(changed)


class Malicious:
    """A pickle that runs code when it is loaded: it writes the canary's file."""

    def __reduce__(self):
        return (exec, (_CODE,))


_CODE = "import os, pathlib; pathlib.Path(os.environ['ACES_FUZZ_CANARY']).write_text('ran')"


def malicious_pickle() -> bytes:
    return pickle.dumps({"state_dict": Malicious()})


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
