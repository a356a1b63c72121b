"""One thin module per stage: load the parameters, read, one library call, write, log."""

import importlib.util
import os
import sys

# How long a thread of OpenMP spins when it waits (libgomp reads this when torch is loaded). By
# default it spins for so long that two experiments at once on the same cores train at half the
# speed they could; alone, this costs nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

if importlib.util.find_spec("dvc") is None or importlib.util.find_spec("torch") is None:
    sys.exit(
        f"{sys.executable} lacks the project's packages: activate the environment first, "
        "`source .venv/bin/activate`, or run `make repro`"
    )
