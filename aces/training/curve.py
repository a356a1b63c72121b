"""The training curve as a file: one row per epoch, written while the training runs.

`dvc plots show`, VS Code and DVC Studio draw such a file, also while it grows.
"""

from pathlib import Path

from aces import files


class CurveFile:
    """To be called after each epoch, as `on_epoch` of `train_network` is.

    A resumed training repeats the calls of the epochs it skips, so the file of an interrupted run
    ends as that of an uninterrupted one, byte for byte. Each call replaces the file in one step: a
    reader never sees half a row.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._rows: list[str] = []

    def __call__(self, epoch: int, metrics: dict[str, float]) -> None:
        if not self._rows:
            self._rows.append(",".join(("epoch", *metrics)))
        self._rows.append(",".join(map(repr, (epoch, *metrics.values()))))
        files.write_text(self.path, "\n".join(self._rows) + "\n")
