"""A project of the digits, in which commands are run as a user would."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
STAGES = (
    "subsample",
    "train_core",
    "train_certify",
    "train_select",
    "sample",
    "calibrate",
    "combine",
    "report",
    "publish",
)


class Project:
    """A clone of this working tree with the digits profile, and commands run in it as a user
    would."""

    def __init__(self, folder: Path, *, existing: bool = False):
        """existing: `folder` is such a clone already."""
        self.folder = folder
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("DVC_", "MLFLOW_", "GIT_"))
        }
        self.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": "",
        }
        if not existing:
            self._create()

    def _create(self) -> None:
        files = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        for name in filter(None, files):
            if (ROOT / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        (self.folder / "dvc.lock").unlink(missing_ok=True)
        shutil.copy(self.folder / "profiles/digits.yaml", self.folder / "params.yaml")
        self("git", "init", "-q")
        # DVC reads the identity from the repository, never from variables: a new machine has none.
        self("git", "config", "user.name", "test")
        self("git", "config", "user.email", "test@example.org")
        self.commit()

    def __call__(self, *command: str, fails: bool = False, **environment: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert (done.returncode != 0) == fails, (
            f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}"
        )
        return done.stdout

    def commit(self) -> None:
        self("git", "add", "-A")
        self("git", "commit", "-q", "--allow-empty", "-m", "state")

    def stages_run(self, output: str) -> set[str]:
        return {stage for stage in STAGES if f"Running stage '{stage}'" in output}

    def curve(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "results/curve.csv")

    def runs(self) -> list[dict]:
        """The parent runs of the MLflow store, the newest first, as a user's script would read
        them.
        """
        program = (
            "import json; from aces import tracking; print(json.dumps([dict(name=run.name, "
            "params=run.params,"
            " metrics=run.metrics, tags=run.tags) for run in tracking.finished_runs()]))"
        )
        return json.loads(self(sys.executable, "-c", program).splitlines()[-1])
