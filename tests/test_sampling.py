"""The sampler: against a naive loop over draws, and over workers and batches."""

import numpy as np
import pytest
import torch
from torch import nn

import odd_networks
from aces.rule.counts import BINS, Round, Settings
from aces.sampling import forward
from aces.sampling.batches import Job, batches
from aces.sampling.drawing import unit_sizes
from aces.sampling.forward import OnnxNetwork, TorchNetwork
from aces.sampling.lattice import lattice
from aces.sampling.noise import generator, stream_of
from aces.sampling.plan import NOISES
from aces.sampling.tally import entropy
from aces.sampling.units import SHARE, Piece, Sizes, Unit, cut
from naive_noise import noise
from sampled import sample, written

SETTINGS = dict(
    sigma=0.25,
    num_classes=odd_networks.CLASSES,
    n0=30,
    n=150,
    n_predict=80,
    seed=5,
    chunk=70,
    device="cpu",
)


NETWORK = odd_networks.convolutional()  # one for all tests: a network is exported once


def draw(network=NETWORK, images=None, **changes):
    return sample(
        network, odd_networks.images(3) if images is None else images, **SETTINGS | changes
    )


def naive_images(image, stream, *, settings, n):
    """Noisy copies of an image: by the slow twin of the exact noise, or by torch's generator, which
    the sampler asks for 50 draws at a time.
    """
    if settings.noise == "exact":
        steps = lattice(settings.sigma)
        base = image.numpy().astype(np.int64).reshape(-1) << steps.refinement
        z = [base + noise(steps, stream, draw=draw, pixels=len(base)) for draw in range(n)]
        noisy = np.array(z, dtype=np.float32) / np.float32(steps.scale)
        return torch.from_numpy(noisy).reshape(n, *image.shape)
    source = generator(stream)
    parts = [
        torch.empty(min(50, n - start), *image.shape).normal_(0, settings.sigma, generator=source)
        for start in range(0, n, 50)
    ]
    return image.float() / 255 + torch.cat(parts)


def naive_doubt(p):
    return 1 / (1 + np.log((1 - 1 / len(p)) / (1 - float(p.max()))))


def naive_draws(network, image, *, settings, index, round, n):
    """Class, score and doubt of each draw, one network call per draw, in float64."""
    found = []
    for start in range(0, n, settings.chunk):
        stream = stream_of(
            seed=settings.seed,
            model=settings.model,
            index=index,
            round=round,
            chunk=start // settings.chunk,
        )
        size = min(settings.chunk, n - start)
        for noisy in naive_images(image, stream, settings=settings, n=size):
            with torch.inference_mode():
                logits = network(noisy[None])[0].double()
            p = torch.softmax(logits, dim=0)
            score = float(-(p * p.log()).sum() / np.log(len(p)))
            found.append((int(p.argmax()), score, float(naive_doubt(p))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_counts_are_those_of_a_naive_loop(noise):
    network, images, index = NETWORK, odd_networks.images(2), [40, 20]
    counts = draw(images=images, index=index, label=[1, 2], noise=noise)
    assert counts.settings.noise == noise
    assert counts.index.tolist() == index and counts.label.tolist() == [1, 2]
    for image in range(2):
        drawn = {
            round: naive_draws(
                network,
                images[image],
                settings=counts.settings,
                index=index[image],
                round=round,
                n=n,
            )
            for round, n in ((Round.GUESS, 30), (Round.BOUND, 150), (Round.PREDICT, 80))
        }
        guess = np.bincount([label for label, _, _ in drawn[Round.GUESS]]).argmax()
        assert counts.guess[image] == guess
        for round, found in drawn.items():
            np.testing.assert_array_equal(
                counts.classes[round, image],
                np.bincount([label for label, _, _ in found], minlength=odd_networks.CLASSES),
            )
            guessed = [each for each in found if each[0] == guess and round != Round.GUESS]
            for name, draws in (("", found), ("joint_", guessed)):
                for column, values in ((1, f"{name}score"), (2, f"{name}doubt")):
                    histogram = getattr(counts, values)[round, image]
                    check_histogram(histogram, [each[column] for each in draws])


def check_histogram(histogram, scores):
    """The histogram counts these scores, up to rounding: float32 against float64 next to an
    edge."""
    assert histogram.sum() == len(scores)
    below = np.cumsum(histogram)
    for i in range(0, BINS + 1, 10):
        assert (
            (np.array(scores) <= i / BINS - 1e-5).sum()
            <= below[i]
            <= (np.array(scores) <= i / BINS + 1e-5).sum()
        )


def test_every_draw_is_counted_once():
    counts = draw()
    np.testing.assert_array_equal(counts.draws, [[30] * 3, [150] * 3, [80] * 3])
    np.testing.assert_array_equal(counts.score.sum(axis=2) + counts.invalid, counts.draws)
    assert (counts.joint_score <= counts.score).all()
    np.testing.assert_array_equal(
        counts.joint_score[Round.BOUND].sum(axis=1),
        counts.classes[Round.BOUND, np.arange(3), counts.guess],
    )
    assert len(set(counts.classes[Round.BOUND].max(axis=1))) > 1, (
        "the test's network answers trivially"
    )


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_do_not_change_a_byte(tmp_path, workers):
    assert written(tmp_path, draw(workers=1)) == written(tmp_path, draw(workers=workers))


def test_an_image_is_counted_alike_among_others_and_alone():
    together, alone = draw(index=[7, 8, 9]), draw(images=odd_networks.images(3)[1:2], index=[8])
    np.testing.assert_array_equal(together.score[:, 1], alone.score[:, 0])
    np.testing.assert_array_equal(together.joint_score[:, 1], alone.joint_score[:, 0])


@pytest.mark.slow
def test_rounds_images_seeds_and_networks_have_their_own_noise():
    network = odd_networks.Threshold(0.5)
    images = torch.full((2, 1, 4, 4), 0.5)
    options = dict(num_classes=2, n0=100, n=100, n_predict=100, chunk=100)
    counts, other = (
        draw(network, images, **options),
        draw(network, images, **options | dict(seed=6)),
    )
    scores = [counts.score[round, image] for round in Round for image in range(2)] + [
        other.score[0, 0]
    ]
    assert len({row.tobytes() for row in scores}) == 7


def test_images_may_be_uint8_of_either_layout_or_floats():
    expected = draw()
    for images in (
        odd_networks.images(3).permute(0, 2, 3, 1),
        odd_networks.images(3).permute(0, 2, 3, 1).numpy(),
        odd_networks.images(3).float() / 255,
        odd_networks.images(3).double() / 255,
    ):
        np.testing.assert_array_equal(draw(images=images).score, expected.score)


def test_the_probability_is_the_known_one():
    """Phi((x - t) / sigma) for the pixel x and the threshold t: within five standard errors of
    40,000 draws.
    """
    images = torch.full((3, 1, 2, 2), 0.5)
    images[:, 0, 0, 0] = torch.tensor([0.5, 0.625, 0.25])
    counts = draw(
        odd_networks.Threshold(0.5),
        images,
        num_classes=2,
        n0=10,
        n=40_000,
        n_predict=0,
        chunk=10_000,
    )
    shares = counts.classes[Round.BOUND, :, 0] / 40_000
    np.testing.assert_allclose(shares, [0.5, 0.69146, 0.15866], atol=0.0125)


@pytest.mark.slow
def test_selection_network_scores_the_same_draws():
    """A selection network with logits (z_0, z_1) of the network itself scores softmax[0], so class
    0 is score > 1/2.
    """
    network = odd_networks.Threshold(0.50001)  # no mean of lattice points: no draw is a tie
    images = torch.full((2, 1, 4, 4), 0.45)
    counts = draw(network, images, num_classes=2, select=network, n=1000)
    assert counts.settings.score == "network"
    np.testing.assert_array_equal(counts.score[:, :, 501:].sum(axis=2), counts.classes[:, :, 0])
    assert counts.settings.model != draw(network, images, num_classes=2).settings.model


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_of_a_piece_does_not_depend_on_its_neighbours(noise):
    """243 values an image, no multiple of 16: torch's noise then depends on how a request is
    cut."""
    pixels = torch.zeros((3, 3, 9, 9))
    settings = Settings(
        sigma=0.5, n0=1, n=100, n_predict=0, seed=0, chunk=100, model="none", noise=noise
    )

    def noisy(images) -> np.ndarray:
        unit = Unit(Round.BOUND, tuple(Piece(image, 0, 100) for image in images))
        job = Job(unit, pixels[images], np.array(images), np.zeros(len(images), np.int64))
        made = [
            batch.draws[: batch.used].clone()
            for batch in batches(job, settings, size=64, device=torch.device("cpu"))
        ]
        return torch.cat(made).numpy()

    together = noisy([0, 1, 2]).reshape(3, 100, 3, 9, 9)
    for image in range(3):
        np.testing.assert_array_equal(together[image], noisy([image]))


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_every_batch_has_the_same_size(noise, monkeypatch):
    """The rows of the last batch that no draw needs are filled up, and not counted."""
    sizes = []
    real = OnnxNetwork.open

    def opened(self, device):
        forward = real(self, device)
        return lambda x: sizes.append(len(x)) or forward(x)

    monkeypatch.setattr(OnnxNetwork, "open", opened)
    counts = draw(odd_networks.convolutional(seed=9), noise=noise)
    assert set(sizes[-10:]) == {50} and counts.draws.sum() == 3 * (30 + 150 + 80)


class Corner(nn.Module):
    """Its logits are a view of its input: two pixels."""

    def forward(self, x):
        return x[:, 0, 0, :2]


@pytest.mark.parametrize("kind", [OnnxNetwork, TorchNetwork])
def test_logits_that_are_a_view_of_the_input_outlive_it(kind, monkeypatch):
    """Batches are counted many at once, when the buffer of the noise has been used again."""
    if kind is TorchNetwork:
        monkeypatch.setattr(forward, "OnnxNetwork", None)  # torch runs the network
    cpu = torch.device("cpu")
    network = forward.prepare(
        Corner(), None, shape=(1, 2, 2), num_classes=2, precision="float32", device=cpu
    )
    assert isinstance(network, kind)
    run, x = network.open(cpu), torch.rand(network.batch, 1, 2, 2)
    (logits,), expected = run(x), x[:, 0, 0, :2].clone()
    assert not torch.equal(run(x.fill_(7.0))[0], expected)
    assert torch.equal(logits, expected)


def test_a_score_of_the_users_own():
    """Twice the entropy of a network of four classes is the entropy to base two, cut at one."""
    counts, own = draw(), draw(score=half_entropy)
    assert own.settings.score == "test_sampling:half_entropy"
    np.testing.assert_array_equal(own.doubt, counts.doubt)
    np.testing.assert_array_equal(own.classes, counts.classes)
    np.testing.assert_array_equal(own.score[:, :, 501:].sum(), 0)
    for theta in range(2, 500, 50):  # half the entropy is at most theta / 2
        below, expected = (
            each.score[..., : place + 1].sum()
            for each, place in ((own, theta), (counts, 2 * theta))
        )
        assert abs(int(below) - int(expected)) <= 1


def half_entropy(logits):
    return entropy(logits) / 2


def test_nan_and_infinite_logits_are_invalid_draws():
    class Broken(odd_networks.Threshold):
        def forward(self, x):
            logits = super().forward(x)
            return torch.where(
                x[:, :1, 0, 1] > 0.5,
                torch.where(x[:, :1, 0, 2] > 0.5, torch.nan, torch.inf),
                logits,
            )

    counts = draw(Broken(), torch.full((2, 1, 4, 4), 0.5), num_classes=2, n=1000, chunk=500)
    np.testing.assert_array_equal(counts.draws[Round.BOUND], 1000)
    assert (np.abs(counts.invalid[Round.BOUND] - 500) < 80).all()
    np.testing.assert_array_equal(counts.score.sum(axis=2), counts.classes.sum(axis=2))


def test_a_network_that_gives_only_nan_has_no_valid_draw():
    network = odd_networks.convolutional()
    nn.init.constant_(network[-1].bias, float("nan"))
    counts = draw(network)
    assert (counts.invalid == counts.draws).all() and counts.classes.sum() == 0


def test_train_mode_is_not_sampled_and_not_touched():
    network = odd_networks.convolutional().train()
    mean = network[1].running_mean.clone()
    np.testing.assert_array_equal(draw(network).score, draw().score)
    assert network.training and network[1].training and torch.equal(mean, network[1].running_mean)


def test_small_chunks_of_several_images_share_a_batch():
    """A unit then holds pieces of several images, and the counts are still those of each."""
    options = dict(n0=5, n=20, n_predict=3, chunk=10)
    together = draw(images=odd_networks.images(9), **options)
    np.testing.assert_array_equal(together.draws, [[5] * 9, [20] * 9, [3] * 9])
    for image in (0, 4, 8):
        alone = draw(images=odd_networks.images(9)[image : image + 1], index=[image], **options)
        np.testing.assert_array_equal(together.score[:, image], alone.score[:, 0])


@pytest.mark.parametrize(
    "values, most",
    [
        (3 * 32 * 32, 2000),  # much of a unit's time shall be draws
        (3 * 224 * 224, 50),  # of large images a kill would lose minutes
    ],
)
def test_the_draws_of_a_unit_on_a_cpu(values, most):
    assert unit_sizes(50, torch.device("cpu"), values=values) == Sizes(most, 50)


@pytest.mark.parametrize("images", [range(7), np.arange(90)])
def test_units_get_smaller_toward_the_end(images):
    """Every draw is in one unit, and in order; what the last units leave to one worker is little."""
    units = list(cut(Round.BOUND, images, start=200, stop=4030, chunk=100, sizes=Sizes(2000, 50)))
    pieces = [tuple(piece) for unit in units for piece in unit.pieces]
    assert pieces == [(i, c, 30 if c == 40 else 100) for i in images for c in range(2, 41)]
    draws = [unit.draws for unit in units]
    assert max(draws) == min(2000, sum(draws) // SHARE // 100 * 100) and max(draws[-10:]) == 100
    (whole,) = cut(Round.GUESS, [3], stop=1, chunk=100, sizes=Sizes(2000, 50))
    assert whole.draws == 1 and not list(cut(Round.GUESS, [], stop=9, chunk=9, sizes=Sizes(9, 9)))
