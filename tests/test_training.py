"""The training loop: it learns, repeats itself to the byte, and goes on after a kill."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from aces import data, networks, params
from aces.data import TrainSet
from aces.errors import InputError
from aces.networks import fingerprint
from aces.runtime import Runtime
from aces.training import Loss, Method, methods, standard, train_network
from aces.training.augment import crop, draw_views
from aces.training.schedule import decays, learning_rate
from aces.training.sources import ArraySource, FolderSource, random_box

pytestmark = pytest.mark.slow

SETTINGS = {
    "epochs": 3,
    "batch": 64,
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.0005,
    "schedule": "one-cycle",
    "milestones": [],
}
GAUSSIAN = Method("gaussian", methods.LOSSES["gaussian"])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits():
    prepared = data.prepare(params.Dataset(name="digits", stride=1))
    return prepared.evaluation, prepared.training


def settings(**changes) -> params.Train:
    return params.Train(**SETTINGS | changes)


def fresh(seed: int = 0, extra: nn.Module | None = None) -> nn.Module:
    info = data.info("digits")
    torch.manual_seed(seed)
    network = networks.build("tiny", num_classes=10, mean=info.mean, std=info.std)
    return network if extra is None else nn.Sequential(network, extra)


def train(network: nn.Module, images: TrainSet, scratch: Path, **changes) -> nn.Module:
    arguments = {
        "settings": settings(),
        "method": GAUSSIAN,
        "sigma": 0.25,
        "seed": 0,
        "runtime": Runtime(device="cpu", scratch=scratch),
        "title": "test",
    }
    return train_network(network, images, **arguments | changes)


def accuracy(network: nn.Module, images) -> float:
    with torch.no_grad():
        return (network(data.to_tensor(images.image)).argmax(1).numpy() == images.label).mean()


class Kill(BaseException):
    """Stands for a signal: nothing but the test catches it."""


def killed_after(epoch: int):
    def on_epoch(done: int, metrics: dict) -> None:
        if done == epoch:
            raise Kill

    return on_epoch


def test_it_learns(digits, tmp_path):
    evaluation, training = digits
    history = []
    network = train(
        fresh(),
        training,
        tmp_path,
        method=standard.method(),
        settings=settings(epochs=5),
        on_epoch=lambda epoch, metrics: history.append((epoch, metrics)),
    )
    assert accuracy(network, evaluation) > 0.85 > 0.4 > accuracy(fresh(), evaluation)
    assert [epoch for epoch, _ in history] == [0, 1, 2, 3, 4]
    assert all(set(metrics) == {"loss", "accuracy", "lr"} for _, metrics in history)
    assert history[-1][1]["loss"] < history[0][1]["loss"] / 3 and history[-1][1]["accuracy"] > 0.8
    assert not network.training


@pytest.mark.parametrize("name", params.METHODS)
def test_every_method_learns_to_see_through_noise(digits, tmp_path, name):
    """With the settings of the default profile; chance is 0.1."""
    evaluation, training = digits
    certify = params.load("profiles/laptop.yaml").certify.replace(method=name)
    network = train(
        fresh(),
        training,
        tmp_path,
        method=methods.resolve(certify, 0.25),
        settings=settings(epochs=6),
    )
    noisy = data.to_tensor(evaluation.image) + 0.25 * torch.randn(
        (360, 1, 8, 8), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        assert (network(noisy).argmax(1).numpy() == evaluation.label).mean() > 0.6


def test_two_runs_give_the_same_weights(digits, tmp_path):
    _, training = digits
    first = train(fresh(), training, tmp_path / "one")
    assert fingerprint(train(fresh(), training, tmp_path / "two")) == fingerprint(first)
    assert fingerprint(train(fresh(), training, tmp_path / "two", seed=1)) != fingerprint(first)
    assert fingerprint(train(fresh(), training, tmp_path / "two", title="other")) != fingerprint(
        first
    )


def test_the_callers_random_state_is_untouched_and_without_influence(digits, tmp_path):
    _, training = digits
    one, two = fresh(extra=nn.Dropout(0.3)), fresh(extra=nn.Dropout(0.3))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    train(one, training, tmp_path / "one", settings=settings(epochs=1))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(124)
    assert fingerprint(
        train(two, training, tmp_path / "two", settings=settings(epochs=1))
    ) == fingerprint(one)


@pytest.mark.parametrize("extra", [None, nn.Dropout(0.3)], ids=["plain", "dropout"])
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(digits, tmp_path, extra):
    _, training = digits
    whole, resumed, steps = [], [], []

    def counted(network, batch, **rest) -> Loss:
        steps.append(batch.epoch)
        return GAUSSIAN.loss(network, batch, **rest)

    straight = train(
        fresh(extra=extra),
        training,
        tmp_path / "a",
        on_epoch=lambda _, metrics: whole.append(metrics),
    )
    with pytest.raises(Kill):
        train(fresh(extra=extra), training, tmp_path / "b", on_epoch=killed_after(1))
    assert len(list((tmp_path / "b").glob("*.pt"))) == 1
    again = train(
        fresh(extra=extra),
        training,
        tmp_path / "b",
        method=Method("gaussian", counted),
        on_epoch=lambda _, metrics: resumed.append(metrics),
    )
    assert fingerprint(again) == fingerprint(straight) and resumed == whole
    assert set(steps) == {2}, "the epochs that were done are not repeated"


def test_a_finished_training_is_not_done_again_unless_its_code_changed(
    digits, tmp_path, monkeypatch
):
    """Its stage may die before DVC has the network; another experiment may need the same one."""
    _, training = digits
    steps, histories = [], ([], [], [])

    def counted(network, batch, **rest) -> Loss:
        steps.append(batch.epoch)
        return GAUSSIAN.loss(network, batch, **rest)

    def trained(history: list) -> str:
        return fingerprint(
            train(
                fresh(),
                training,
                tmp_path,
                method=Method("gaussian", counted),
                on_epoch=lambda epoch, metrics: history.append((epoch, metrics)),
            )
        )

    first, made = trained(histories[0]), len(steps)
    assert trained(histories[1]) == first and len(steps) == made > 0
    monkeypatch.setattr(torch, "__version__", "another")
    assert trained(histories[2]) == first and len(steps) == 2 * made
    assert histories[0] == histories[1] == histories[2]


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 0.5},
        {"seed": 1},
        {"title": "other"},
        {"settings": settings(lr=0.2)},
        {"method": Method("gaussian", GAUSSIAN.loss, settings="other")},
        "labels",
        "weights",
    ],
)
def test_only_the_same_training_is_resumed(digits, tmp_path, change):
    _, training = digits
    with pytest.raises(Kill):
        train(fresh(), training, tmp_path, on_epoch=killed_after(0))
    network = fresh(1) if change == "weights" else fresh()
    if change == "labels":
        training = TrainSet(training.image, (training.label + 1) % 10)
    keyed = change if isinstance(change, dict) else {}
    with pytest.raises(Kill):
        train(network, training, tmp_path, on_epoch=killed_after(0), **keyed)
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_a_loss_that_is_not_a_number_stops_with_the_remedy(digits, tmp_path):
    _, training = digits

    def broken(network, batch, **_) -> Loss:
        logits = network(batch.image)
        return Loss(logits.sum() * float("nan"), logits)

    with pytest.raises(
        InputError, match=r"training test: the loss is nan in epoch 1: lower lr=0\.1"
    ):
        train(fresh(), training, tmp_path, method=Method("broken", broken))


def test_a_dataset_smaller_than_the_batch_is_one_batch(digits, tmp_path):
    _, training = digits
    seen = []

    def watching(network, batch, **rest) -> Loss:
        seen.append(len(batch.label))
        return GAUSSIAN.loss(network, batch, **rest)

    few = TrainSet(training.image[:40], training.label[:40])
    train(fresh(), few, tmp_path, method=Method("watching", watching), settings=settings(epochs=2))
    assert seen == [40, 40]


def test_a_method_may_split_the_batch(digits, tmp_path):
    _, training = digits
    with pytest.raises(InputError, match="train.batch=64: expected a multiple of 100"):
        train(fresh(), training, tmp_path, method=Method("gaussian", GAUSSIAN.loss, split=100))


def test_every_image_is_seen_once_an_epoch_in_another_order(tmp_path):
    number = np.arange(64)
    images = TrainSet(np.repeat(number, 64).astype(np.uint8).reshape(64, 8, 8, 1), number % 10)
    seen = []

    def watching(network, batch, **rest) -> Loss:
        seen.append((batch.epoch, (batch.image[:, 0, 0, 0] * 255).round().int().tolist()))
        assert torch.equal(batch.label, (batch.image[:, 0, 0, 0] * 255).round().long() % 10)
        return GAUSSIAN.loss(network, batch, **rest)

    train(
        fresh(),
        images,
        tmp_path,
        method=Method("watching", watching),
        settings=settings(epochs=2, batch=16),
    )
    orders = [sum((rows for at, rows in seen if at == epoch), []) for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == number.tolist() and orders[0] != orders[1]


def test_one_cycle_rises_to_the_peak_and_falls_to_zero():
    rates = [learning_rate(settings(epochs=8, lr=0.4), time=time) for time in (0, 1, 2, 5, 8)]
    assert rates == pytest.approx([0, 0.2, 0.4, 0.2, 0])


def test_step_decays_by_ten_at_each_milestone():
    steps = settings(schedule="step", milestones=[2, 4], lr=0.1)
    rates = [learning_rate(steps, time=time) for time in (0, 1.99, 2, 3.99, 4, 9)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert [decays(steps, epoch=epoch) for epoch in range(6)] == [0, 0, 1, 1, 2, 2]


def test_crops_and_flips_are_those_of_a_loop_over_images():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    views = draw_views(images.shape, torch.Generator().manual_seed(0), mirror=True)
    rows = torch.tensor([3, 17, 17, 0, 29])
    fast = crop(torch.from_numpy(images), rows, views)
    assert fast.is_contiguous(memory_format=torch.channels_last)
    for place, row in enumerate(rows.tolist()):
        padded = np.pad(images[row], ((2, 2), (2, 2), (0, 0)), mode="reflect")
        down, right = (views.shift[row] + 2).tolist()
        slow = padded[down : down + 16, right : right + 16]
        slow = slow[:, ::-1] if views.mirror[row] else slow
        np.testing.assert_allclose(fast[place].permute(1, 2, 0).numpy() * 255, slow, atol=1e-4)


def test_views_cover_all_shifts_and_mirror_photographs_only():
    colour = draw_views((4000, 32, 32, 3), torch.Generator().manual_seed(0), mirror=True)
    assert sorted(set(colour.shift.flatten().tolist())) == list(range(-4, 5))
    assert 0.45 < colour.mirror.float().mean() < 0.55
    grey = draw_views((4000, 8, 8, 1), torch.Generator().manual_seed(0), mirror=False)
    assert not grey.mirror.any() and sorted(set(grey.shift.flatten().tolist())) == [-1, 0, 1]


@pytest.mark.parametrize(
    "channels, said, mirrored",
    [(3, None, True), (1, None, False), (3, False, False), (1, True, True)],
)
def test_the_dataset_says_whether_mirror_images_keep_their_class(channels, said, mirrored):
    pixels = np.zeros((64, 8, 8, channels), dtype=np.uint8)
    pixels[:, :, :4] = 255  # bright on the left
    images = TrainSet(pixels, np.zeros(64, np.int64), mirror=said)
    source = ArraySource(images, torch.device("cpu"))
    ((batch, _),) = source.batches(torch.arange(64)[None], seed=0)
    turned = batch[:, 0, :, :4].mean((1, 2)) < batch[:, 0, :, 4:].mean((1, 2))
    assert bool(turned.any()) == mirrored and not turned.all()


@pytest.fixture
def folder(tmp_path):
    """Twelve photographs of several sizes and modes, as files."""
    random, paths = np.random.default_rng(1), []
    for number in range(12):
        shape = (40 + 5 * number, 60, 3) if number % 3 else (50, 50)
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(paths[-1])
    return TrainSet(image=paths, label=np.arange(12) % 2)


def test_a_folder_gives_the_same_crops_whatever_the_order(folder, monkeypatch):
    source = FolderSource(folder, torch.device("cpu"))
    rows = torch.arange(12).view(3, 4)
    together = torch.cat([image for image, _ in source.batches(rows, seed=4)])
    assert together.shape == (12, 3, 224, 224) and 0 <= together.min() < together.max() <= 1
    monkeypatch.setattr("aces.training.sources.MAX_WORKERS", 1)
    ((other, label),) = source.batches(torch.tensor([[7, 2]]), seed=4)
    assert torch.equal(other, together[[7, 2]]) and label.tolist() == [1, 0]
    ((third, _),) = source.batches(torch.tensor([[7, 2]]), seed=5)
    assert not torch.equal(third, other)


def test_boxes_lie_within_the_image_and_have_the_usual_sizes():
    random = np.random.default_rng(0)
    boxes = np.array([random_box(60, 40, random) for _ in range(2000)])
    left, top, right, bottom = boxes.T
    width, height = right - left, bottom - top
    assert (
        left.min() >= 0
        and top.min() >= 0
        and right.max() <= 60 + 1e-9
        and bottom.max() <= 40 + 1e-9
    )
    assert (width * height / 2400).min() >= 0.08 - 1e-9 and (width * height / 2400).mean() > 0.3
    assert (width / height).min() >= 3 / 4 - 1e-9 and (width / height).max() <= 4 / 3 + 1e-9
    assert random_box(1000, 10, random)[2] <= 1000  # no box of the usual shape fits


def test_a_folder_trains_and_a_broken_file_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("aces.training.sources.MAX_WORKERS", 1)
    network = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(147, 2))
    before = fingerprint(network)
    train(network, folder, tmp_path / "scratch", settings=settings(epochs=1, batch=4))
    assert fingerprint(network) != before
    folder.image[5].write_bytes(b"not an image")
    with pytest.raises(InputError, match="^image .*5.png is in no format that Pillow") as caught:
        train(network, folder, tmp_path / "scratch", settings=settings(epochs=1, batch=4))
    assert "\n" not in str(caught.value)
