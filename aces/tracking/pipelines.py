"""Which parent run a stage belongs to, and what becomes of runs whose process is gone.

The stages of one pipeline run are separate processes. They find their common parent by a key: the
project, the parameters and the git commit (or the name of the experiment). A parent is taken up
again until its last stage has finished, so an interrupted and resumed pipeline is one run.
"""

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import psutil

from aces import paths
from aces.files import digest_of
from aces.tracking import names

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_CHARACTERS = 6000  # MLflow's limit for the value of a parameter
MOST_RUNS = 200  # runs that are checked for a dead process


def find_parent(client: "MlflowClient", experiment: str, parameters: dict[str, object]) -> str:
    """The unfinished parent run of this pipeline, or a new one."""
    from mlflow.entities import Param

    key = pipeline_key(parameters)
    query = f"tags.`{names.PIPELINE}` = '{key}'"
    for run in client.search_runs([experiment], query, order_by=["attributes.start_time DESC"]):
        if names.COMPLETE not in run.data.tags:
            client.update_run(run.info.run_id, status="RUNNING")
            return run.info.run_id
    tags = {
        names.PIPELINE: key,
        names.DESCRIPTION: describe(parameters),
        "mlflow.source.name": "dvc.yaml",
        **git_tags(),
        **parameter_tags(parameters),
    }
    run = client.create_run(experiment, run_name=run_name(parameters), tags=tags)
    values = [Param(name, str(value)[:MOST_CHARACTERS]) for name, value in parameters.items()]
    for start in range(0, len(values), 100):  # MLflow takes a hundred at a time
        client.log_batch(run.info.run_id, params=values[start : start + 100])
    return run.info.run_id


def pipeline_key(parameters: dict[str, object]) -> str:
    """What the stages of one pipeline run have in common."""
    content = digest_of(sorted(parameters.items()))[:12]
    if experiment := os.environ.get("DVC_EXP_NAME"):
        return f"exp/{os.environ.get('DVC_EXP_BASELINE_REV', '')}/{experiment}/{content}"
    project = digest_of(socket.gethostname(), str(paths.root().resolve()))[:12]
    return f"repro/{project}/{git('rev-parse', 'HEAD')[:12]}/{content}"


def run_name(parameters: dict[str, object]) -> str:
    method, sigma = parameters.get("certify.method"), parameters.get("sigma")
    what = f"{parameters.get('dataset.name')}-{method}-{sigma}"
    experiment = os.environ.get("DVC_EXP_NAME")
    return f"{what}-{experiment}" if experiment else what


def describe(parameters: dict[str, object]) -> str:
    """The description that a run has until its results are published."""
    value = parameters.get
    return (
        f"ACES on {value('dataset.name')} at sigma {value('sigma')}: core network "
        f"{value('core.arch')}, certification network {value('certify.arch')} trained by "
        f"{value('certify.method')}."
    )


def parameter_tags(parameters: dict[str, object]) -> dict[str, str]:
    """What runs are usually grouped and filtered by."""
    wanted = {"dataset": "dataset.name", "method": "certify.method", "sigma": "sigma"}
    return {tag: str(parameters[name]) for tag, name in wanted.items() if name in parameters}


def git_tags() -> dict[str, str]:
    tags = {
        "mlflow.source.git.commit": git("rev-parse", "HEAD"),
        "mlflow.source.git.branch": git("branch", "--show-current"),
        "aces.git.changed": "yes" if git("status", "--porcelain", "--untracked-files=no") else "",
        "aces.experiment": os.environ.get("DVC_EXP_NAME", ""),
    }
    return {name: value for name, value in tags.items() if value}


def git(*arguments: str) -> str:
    """The answer of git in the project; empty where there is no git or no repository."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=paths.root(), capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


# ---------------------------------------------------------------- dead runs


def process_name(pid: int) -> str:
    """A process of this machine, by a name that no later process has."""
    return f"{socket.gethostname()}/{pid}@{psutil.Process(pid).create_time():.0f}"


def alive(name: str) -> bool:
    """Whether the process that `process_name` named still runs on this machine."""
    pid, _, start = name.rpartition("/")[2].partition("@")
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(start)) < 2
    except (psutil.Error, ValueError):
        return False


def close_dead(client: "MlflowClient", experiment: str) -> list[str]:
    """Mark the runs of this machine as KILLED that are RUNNING without a process; their ids."""
    here = f"{socket.gethostname()}/"
    query = f"attributes.status = 'RUNNING' and tags.`{names.PROCESS}` LIKE '{here}%'"
    running = client.search_runs([experiment], query, max_results=MOST_RUNS)
    dead = [run for run in running if not alive(run.data.tags[names.PROCESS])]
    busy = {run.data.tags.get(names.PARENT) for run in running if run not in dead}
    closed = [run.info.run_id for run in dead]
    for parent in {run.data.tags.get(names.PARENT) for run in dead} - busy:
        if parent is not None and client.get_run(parent).info.status == "RUNNING":
            closed.append(parent)
    for run_id in closed:
        client.set_terminated(run_id, "KILLED")
    return closed
