"""Networks that other people trained, in the files they published: skipped where these are not.

The folder is named by ACES_PUBLISHED, or is ../shared/published-networks beside the project. The
accuracies are those of its README, on every 20th test image of CIFAR-10.
"""

import json
import os
from pathlib import Path

import pytest

from aces import cli, data, networks, paths
from aces.networks import evidence

ROOT = Path(__file__).parent.parent
FOLDER = Path(os.environ.get("ACES_PUBLISHED", ROOT.parent / "shared" / "published-networks"))
IMAGES = ROOT / paths.evaluation_images("cifar10")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no published networks in {FOLDER}"),
    pytest.mark.skipif(not IMAGES.is_file(), reason="no CIFAR-10 here: `dvc repro subsample`"),
]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project in which the stage subsample has run."""
    monkeypatch.chdir(tmp_path)
    target = paths.evaluation_images("cifar10")
    target.parent.mkdir(parents=True)
    target.symlink_to(IMAGES)
    return tmp_path


@pytest.mark.parametrize(
    "file, arch, normalization, accuracy",
    [
        ("resnet20-12fca82f.th", "cifar_resnet20-a", "imagenet", 0.900),
        ("resnet56-4bfd9763.th", "cifar_resnet56-a", "imagenet", 0.948),
        ("distiller-resnet20.pth.tar", "cifar_resnet20", "half", 0.904),
    ],
)
def test_one_command_imports_it_with_its_accuracy(
    project, capsys, file, arch, normalization, accuracy
):
    assert cli.main(["import", str(FOLDER / file), "--dataset", "cifar10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["arch"], found["normalization"]) == (arch, normalization)
    assert found["accuracy"] == pytest.approx(accuracy, abs=0.01)


def test_ffdnet_before_resnet56(project, capsys):
    """README: 94.6 % clean, 75.8 % at sigma 0.12; three other noises gave 75.6 to 78.8 %."""
    denoiser = networks.load_denoiser(FOLDER / "ffdnet_color.pth", channels=3)
    classifier = networks.load_checkpoint(FOLDER / "resnet56-4bfd9763.th", dataset="cifar10")
    evaluation = data.read_eval(IMAGES)
    clean = networks.before(denoiser, classifier, sigma=1e-6)
    assert evidence.accuracy_of(clean, evaluation) == pytest.approx(0.946, abs=0.01)
    noisy = networks.before(denoiser, classifier, sigma=0.12)
    accuracy = evidence.accuracy_of(noisy, evaluation, sigma=0.12)
    assert accuracy == pytest.approx(0.758, abs=0.04)
