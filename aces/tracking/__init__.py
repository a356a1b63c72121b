"""What happened, in MLflow: one parent run per pipeline run, one nested run per stage.

`stage`     what a stage calls: StageRun, track(). It never waits for a store that does not answer.
`writer`    the process that writes for one stage; `recorder` what it does there.
`pipelines` which parent run a stage belongs to; runs whose process is gone.
`store`     the database, its experiment, its folder of artifacts, errors in our words.
`runs`      reading finished runs.
`publish`   what the last stage adds: the working point, the curve, the report, the model.

Tracking never stops the work: what fails is said once, and the stage goes on. Only this room, the
serving code and the model's MLflow wrapper import mlflow.
"""

from aces.files import digest
from aces.tracking.names import EXPERIMENT, metric_name, numbers
from aces.tracking.runs import FinishedRun, finished_runs
from aces.tracking.stage import StageRun, track
from aces.tracking.store import public, reason, tracking_uri

__all__ = [
    "EXPERIMENT",
    "FinishedRun",
    "StageRun",
    "digest",
    "finished_runs",
    "metric_name",
    "numbers",
    "public",
    "reason",
    "track",
    "tracking_uri",
]
