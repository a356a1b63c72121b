"""Kills at random moments: what goes on from scratch afterwards gives the same bytes.

    python -m tests.kills --seed 7      # or `make kills SEED=7`

20 kills of sampling, 10 of a training after its first epoch was written, and 5 with Ray (of a
worker or of the driver). Some of the killed processes are tracked, as stages are. It prints what
was kept at each kill, and what remains in scratch, in MLflow and in the process table. It exits
with 1 if a result differs, a file is unfinished, a process is left, or MLflow has a run that is
still RUNNING or none that was FINISHED.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import psutil
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the helpers of the other tests

import sampler_process  # noqa: E402
import test_training_state  # noqa: E402
from aces import params, tracking  # noqa: E402
from aces.files import digest  # noqa: E402
from aces.rule.counts import write_counts  # noqa: E402
from aces.tracking import channel, store  # noqa: E402

torch.set_num_threads(1)  # a forked process would wait for threads that it does not have
TRAINING = params.Train(epochs=300, batch=16, lr=0.1)
PARAMETERS = params.flatten(params.load(HERE.parent / "profiles/laptop.yaml"))
PATIENCE = 300.0  # seconds until something that should happen counts as hanging
TRACKED_EVERY = 5  # MLflow takes seconds to start: not every process that is killed is tracked
MARK = "ACES_KILLS"  # in the environment of all that is started here, also of orphans


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("sampling", "training", "ray"))
    parser.add_argument("--ray-driver", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ray_driver is not None:
        with running("sample"):
            write_counts(args.ray_driver / "ray.npz", draw_with_ray(args.ray_driver))
        return 0
    os.environ[MARK] = str(os.getpid())
    works = {"sampling": kill_sampling, "training": kill_training, "ray": kill_ray}
    sound = True
    for name in [args.only] if args.only else works:
        with project() as folder:
            same = works[name](folder, random.Random(f"{args.seed}/{name}"))
            print(f"{name}: {'the same bytes' if same else 'OTHER BYTES'}")
            clean = [in_process_table(), in_scratch(folder), in_mlflow()]
            sound = sound and same and all(clean)
    return 0 if sound else 1


@contextmanager
def project() -> Iterator[Path]:
    """An empty project with a store of its own, as working directory."""
    before = Path.cwd()
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="aces-kills-") as folder:
        (Path(folder) / ".dvc").mkdir()
        os.chdir(folder)
        store.open_store()  # its migrations take longer than all that is killed here
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def tracked(kills: int) -> AbstractContextManager:
    """What a process works in that starts after so many kills."""
    return running("sample") if kills % TRACKED_EVERY == 0 else nullcontext()


@contextmanager
def running(stage: str) -> Iterator[None]:
    """A tracked stage, whose run is in MLflow when the work begins.

    It waits for its store as long as that takes on a busy machine: without a run in it, there would
    be nothing to look at afterwards.
    """
    channel.SECONDS = channel.SETUP_SECONDS = PATIENCE
    with tracking.track(stage, PARAMETERS) as run:
        _ = run.id  # waits until the run is there
        yield


# ---------------------------------------------------------------- what remains


def in_process_table() -> bool:
    """Whether nothing that was started here still runs. The writers to MLflow may take a moment."""
    gone, left = psutil.wait_procs(list(marked()), timeout=60)
    names = [" ".join(process.cmdline())[:80] for process in left if process.is_running()]
    print(f"  processes left: {', '.join(names) or 'none'}")
    return not names


def marked() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(os.getpid()):
                yield process
        except psutil.Error:
            continue  # it ended, or is not ours


def in_scratch(folder: Path) -> bool:
    files = sorted(path for path in (folder / "scratch").rglob("*") if path.is_file())
    unfinished = [path.name for path in files if path.name.startswith(".") or ".tmp" in path.name]
    kinds = Counter(path.name if path.suffix != ".pt" else "*.pt" for path in files)
    shown = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    print(f"  scratch: {shown or 'nothing'}; unfinished: {', '.join(unfinished) or 'none'}")
    return not unfinished


def in_mlflow() -> bool:
    client = store.open_store()
    runs = client.search_runs([store.experiment_id(client)])
    found = Counter(run.info.status for run in runs)
    shown = ", ".join(f"{count} {status}" for status, count in sorted(found.items()))
    print(f"  MLflow: {shown or 'no runs'}", flush=True)
    return "RUNNING" not in found and "FINISHED" in found


# ---------------------------------------------------------------- kills


def kill_sampling(folder: Path, rng: random.Random) -> bool:
    """20 kills of a process that samples."""
    write_counts(folder / "straight.npz", sampler_process.draw(None))
    found = sampler_process.kills(
        folder, 20, seed=rng.getrandbits(32), patience=PATIENCE, around=tracked
    )
    print(f"sampling: {found['kills']} kills, units kept at each: {found['kept'][1:]}", flush=True)
    return found["kills"] == 20 and digest(folder / "killed.npz") == digest(folder / "straight.npz")


def kill_training(folder: Path, rng: random.Random) -> bool:
    """10 kills of a process that trains, each at some moment after an epoch was written."""
    scratch, result = folder / "scratch", folder / "result"

    def work() -> None:
        with tracked(kills):
            trained = test_training_state.fit(scratch, settings=TRAINING)
        result.write_text(trained)

    def changed() -> int:
        return max((path.stat().st_mtime_ns for path in scratch.glob("*.pt")), default=0)

    kills = 0  # `work` reads it
    while kills < 10 and not result.exists():
        child = sampler_process.forked(work)
        before = changed()
        wait_until(lambda before=before: changed() > before or result.exists())
        time.sleep(rng.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += not result.exists()
    work()
    # A training that ends before ten kills shows nothing: give it more epochs.
    print(f"training: {kills} kills of 10", flush=True)
    straight = test_training_state.fit(folder / "straight", settings=TRAINING)
    return kills == 10 and result.read_text() == straight


def draw_with_ray(folder: Path):
    return sampler_process.draw(folder, engine="ray", n=20_000)


def kill_ray(folder: Path, rng: random.Random) -> bool:
    """5 kills with Ray: of the driver, which then starts again, or of one of its workers."""
    write_counts(folder / "straight.npz", sampler_process.draw(None, n=20_000))
    kinds, done = [], False
    while not done:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.kills", "--ray-driver", str(folder)],
            cwd=folder,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": _search_path()},
        )
        while len(kinds) < 5 and driver.poll() is None:
            more = kept(folder) + rng.randint(1, 100)
            wait_until(lambda: kept(folder) >= more or driver.poll() is not None)
            workers = [it for it in _below(driver) if it.name().startswith("ray::")]
            victim = rng.choice(("driver", "worker"))
            if victim == "worker" and workers:
                rng.choice(workers).kill()
                kinds.append("worker")
            elif driver.poll() is None:
                others = _below(driver)
                driver.kill()
                kinds.append("driver")
                driver.wait()
                start = time.monotonic()
                gone, left = psutil.wait_procs(others, timeout=PATIENCE)
                seconds = time.monotonic() - start
                print(
                    f"ray: {seconds:.0f} s after its driver was killed, {len(left)} of its "
                    f"{len(others)} processes are left",
                    flush=True,
                )
        done = driver.wait() == 0
    print(f"ray: kills of {', '.join(kinds)}", flush=True)
    return len(kinds) == 5 and digest(folder / "ray.npz") == digest(folder / "straight.npz")


def kept(folder: Path) -> int:
    """Units in scratch."""
    logs = (folder / "scratch").glob("*/units.log")
    return sum(log.read_bytes().count(b"\n") for log in logs)


def _below(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def _search_path() -> str:
    return os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {PATIENCE:.0f} s")
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main())
