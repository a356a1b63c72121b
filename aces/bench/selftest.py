"""What a machine proves for itself in a minute: a GPU that the project was never run on, above all.

Every check compares with something that is known: the noise with its law, logits with those of the
plain network on the CPU, counts with the same counts drawn again, in another way, or after a kill.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aces import networks, runtime
from aces.bench.sampler import measure_sampler
from aces.data import info
from aces.errors import one_line
from aces.rule.counts import Counts, write_counts
from aces.runtime import Runtime
from aces.sampling import DrawPlan, law, sample
from aces.sampling.forward import kind_of, opened, prepare
from aces.sampling.lattice import lattice
from aces.sampling.noise import AliasNoise

SIGMAS = (0.12, 0.25, 1.0)
LAW_DRAWS = 2 * 10**7  # for each sigma
SPEED_SECONDS = 0.5  # of each way of sampling in each of three repeats
TOLERANCE = 1e-3  # of logits, relative to the largest
IMAGES = 4
PLAN = DrawPlan(sigma=0.25, n0=100, n=1900, chunk=100)
PATIENCE = 60.0  # seconds in which a process must have begun to draw


@dataclass(frozen=True)
class Check:
    """One check: whether it passed, and what was seen. passed is None where it does not apply."""

    name: str
    passed: bool | None
    seen: str
    seconds: float


def selftest(*, device: str = "auto", network: str = "small") -> Iterator[Check]:
    """The checks, one after the other, on every device that `device` names."""
    devices = runtime.devices(device)
    model = _network(network)
    checks: dict[str, Callable[[], tuple[bool | None, str]]] = {
        "the law of the noise": lambda: _law(devices[0]),
        "logits against the CPU's": lambda: _logits(model, devices[0]),
        "a padded batch": lambda: _batches(model, devices[0]),
        "the same counts twice": lambda: _twice(model, device),
        "one worker or several": lambda: _workers(model, device, devices),
        "a kill and a resume": lambda: _killed(network, device),
        "speed": lambda: _speed(network, device),
    }
    for name, check in checks.items():
        start = time.perf_counter()
        try:
            passed, seen = check()
        except Exception as error:  # a check that cannot run has failed, and says why
            passed, seen = False, one_line(error)
        yield Check(name, passed, seen, time.perf_counter() - start)


def _law(device: torch.device) -> tuple[bool, str]:
    """Drawn values against the exact law, by several tests."""
    found = [
        law.check_law(sigma, draws=LAW_DRAWS) if device.type == "cpu" else _gpu_law(sigma, device)
        for sigma in SIGMAS
    ]
    least = min(min(it.chi_square, it.mean, it.variance, *it.tails.values()) for it in found)
    return all(it.fits() for it in found), (
        f"{LAW_DRAWS:,} values at sigma {', '.join(map(str, SIGMAS))}; smallest p-value {least:.2g}"
    )


def _gpu_law(sigma: float, device: torch.device) -> law.LawTest:
    steps = lattice(sigma)
    noise, source = AliasNoise(steps, device), torch.Generator(device).manual_seed(0)
    counts = torch.zeros(2 * steps.reach + 1, dtype=torch.int64, device=device)
    for _ in range(-(-LAW_DRAWS // 2**20)):
        values = noise.draw((2**20,), source) + steps.reach
        counts += torch.bincount(values, minlength=len(counts))
    return law.compare(counts.cpu().numpy(), steps)


@torch.inference_mode()
def _logits(model: nn.Module, device: torch.device) -> tuple[bool, str]:
    """The network as the sampler runs it (exported, or compiled and recorded) against the plain one."""
    prepared = prepare(
        model, None, shape=(3, 32, 32), num_classes=10, precision="float32", device=device
    )
    noisy = _noisy(prepared.batch)
    (found,) = opened(prepared, device)(noisy.to(device))
    plain = model(noisy)
    apart = ((found.cpu().float() - plain).abs().max() / plain.abs().max()).item()
    return apart < TOLERANCE, f"{prepared.backend}: largest difference {apart:.1e} of the largest"


@torch.inference_mode()
def _batches(model: nn.Module, device: torch.device) -> tuple[bool, str]:
    """A draw's logits must not depend on the draws beside it: the rest of the batch is changed."""
    prepared = prepare(
        model, None, shape=(3, 32, 32), num_classes=10, precision="float32", device=device
    )
    forward, noisy = opened(prepared, device), _noisy(prepared.batch).to(device)
    first = forward(noisy)[0].clone()
    half = len(noisy) // 2
    other = torch.cat([noisy[:half], noisy[half:].flip(0) * 0.5])
    same = torch.equal(first[:half], forward(other)[0][:half])
    return same, f"batches of {prepared.batch}: {'the same' if same else 'other'} logits"


def _twice(model: nn.Module, device: str) -> tuple[bool, str]:
    same = _bytes(_draw(model, Runtime(device=device, progress=False))) == _bytes(
        _draw(model, Runtime(device=device, progress=False))
    )
    return same, f"{IMAGES * PLAN.draws:,} draws: {'the same' if same else 'OTHER'} bytes"


def _workers(model: nn.Module, device: str, devices: list[torch.device]) -> tuple[bool | None, str]:
    several = 2 if devices[0].type == "cpu" else len(devices)
    if several == 1:
        return None, "one GPU of this kind"
    one, more = (
        _bytes(_draw(model, Runtime(device=device, workers=workers, progress=False)))
        for workers in (1, several)
    )
    same = one == more
    return same, f"1 and {several}: {'the same' if same else 'OTHER'} bytes"


def _killed(network: str, device: str) -> tuple[bool, str]:
    """A process is killed while it draws; another one goes on from what it left."""
    expected = _bytes(_draw(_network(network), Runtime(device=device, progress=False), times=8))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        process = multiprocessing.get_context("spawn").Process(
            target=_draw_in_scratch, args=(network, device, scratch), daemon=True
        )
        process.start()
        kept = _wait_for_units(scratch, process)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        where = Runtime(device=device, scratch=scratch, progress=False)
        same = _bytes(_draw(_network(network), where, times=8)) == expected
    return same and kept > 0, (
        f"killed after {kept} units were kept: {'the same' if same else 'OTHER'} bytes"
    )


def _draw_in_scratch(network: str, device: str, scratch: Path) -> None:
    where = Runtime(device=device, scratch=scratch, progress=False)
    _draw(_network(network), where, times=8)


def _wait_for_units(scratch: Path, process: multiprocessing.process.BaseProcess) -> int:
    """How many units a process has kept, as soon as there are some."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.is_alive():
        logs = list(scratch.glob("*/units.log"))
        kept = logs[0].read_bytes().count(b"\n") if logs else 0
        if kept >= 3:
            return kept
        time.sleep(0.005)
    return 0


def _speed(network: str, device: str) -> tuple[None, str]:
    """Told, never judged: speeds are of no consequence to a certificate."""
    found = measure_sampler(network=network, seconds=SPEED_SECONDS, repeats=3, device=device)
    return None, (
        f"{found['draws_per_second']['sampler']:,.0f} draws/s, "
        f"{found['sampler_over_forward']:.2f} of the bare forward pass"
    )


def _network(name: str) -> nn.Module:
    cifar10 = info("cifar10")
    torch.manual_seed(0)
    return networks.build(name, num_classes=10, mean=cifar10.mean, std=cifar10.std).eval()


def _noisy(count: int) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.rand((count, 3, 32, 32), generator=source) + 0.25 * torch.randn(
        (count, 3, 32, 32), generator=source
    )


def _draw(model: nn.Module, where: Runtime, *, times: int = 1) -> Counts:
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    plan = DrawPlan(sigma=PLAN.sigma, n0=PLAN.n0, n=PLAN.n * times, chunk=PLAN.chunk)
    return sample(model, images, plan, num_classes=10, runtime=where)


def _bytes(counts: Counts) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_counts(Path(folder) / "counts.npz", counts)
        return (Path(folder) / "counts.npz").read_bytes()


def machine(device: str) -> dict[str, str]:
    """What the checks ran on, for a report."""
    import platform
    from importlib.metadata import version

    from aces import __version__
    from aces.sampling.forward import cpu_kind

    return {
        "aces": __version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "system": platform.platform(terse=True),
        "cpu": cpu_kind(),
        "device": kind_of(runtime.devices(device)[0]),
        "devices": str(len(runtime.devices(device))),
    }
