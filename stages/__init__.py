"""One thin module a stage: load the parameters, read, one library call, write, log."""

import importlib.util
import sys

if importlib.util.find_spec("dvc") is None or importlib.util.find_spec("torch") is None:
    sys.exit(f"{sys.executable} lacks the project's packages: activate the environment first, "
             "`source .venv/bin/activate`, or run `make repro`")
