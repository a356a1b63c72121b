"""A folder of image files: what is found, and every mistake in one line."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aces import data, params
from aces.data import preparation, splits
from aces.data.images import read_image
from aces.data.reading import at_size
from aces.errors import InputError

pytestmark = pytest.mark.usefixtures("datasets")

CLASSES = ["circle", "cross", "dots", "square", "stripes"]


def picture(random: np.random.Generator, number: int, size: tuple[int, int]) -> Image.Image:
    """A photograph of class `number`: its colour tells the class, the rest is noise."""
    pixels = random.integers(0, 100, (*size[::-1], 3), dtype=np.uint8)
    pixels[..., number % 3] += np.uint8(50 + 20 * number)
    return Image.fromarray(pixels)


def fill(folder: Path, *, images: int = 4, seed: int = 0, classes=CLASSES) -> Path:
    """Files of odd shapes and formats, `images` for each class."""
    random = np.random.default_rng(seed)
    sizes = [(64, 64), (500, 300), (90, 200), (65, 71)]
    suffixes = ["png", "jpg", "JPEG", "bmp", "webp"]
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for count in range(images):
            image = picture(random, number, sizes[count % len(sizes)])
            image.save(folder / name / f"{count:02d}.{suffixes[(number + count) % len(suffixes)]}")
    return folder


@pytest.fixture
def photos(tmp_path) -> Path:
    """Five classes of photographs, in folders for training and test."""
    fill(tmp_path / "photos" / "train", images=6)
    fill(tmp_path / "photos" / "test", images=4, seed=1)
    return tmp_path / "photos"


def prepare(path: Path, calibration: int = 0, name: str = "folder", **settings) -> data.Prepared:
    settings = {"stride": 1, "size": 32} | settings
    return data.prepare(params.Dataset(name=name, path=str(path), **settings), calibration)


def fails(message: str, *arguments, **settings) -> str:
    """The message of `prepare`, which is one line."""
    with pytest.raises(InputError, match=message) as caught:
        prepare(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is found ---


def test_a_folder_becomes_arrays_with_names_mean_and_deviation(photos, tmp_path):
    prepared = prepare(photos, 7, stride=3)
    evaluation, training = prepared.evaluation, prepared.training
    assert evaluation.classes == training.classes == CLASSES
    assert evaluation.image.shape == (7, 32, 32, 3) and training.image.shape == (30, 32, 32, 3)
    assert evaluation.label.tolist() == [0, 0, 1, 2, 3, 3, 4]
    assert evaluation.index.tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert len(prepared.calibration.label) == 7
    third = sorted((photos / "test" / "circle").iterdir())[3]
    np.testing.assert_array_equal(evaluation.image[1], read_image(third, shape=(3, 32, 32)))
    pixels = training.image.reshape(-1, 3) / 255
    assert evaluation.mean == training.mean == pytest.approx(pixels.mean(axis=0), abs=1e-5)
    assert evaluation.std == training.std == pytest.approx(pixels.std(axis=0), abs=1e-5)
    data.write_eval(tmp_path / "eval.npz", evaluation)
    assert data.read_eval(tmp_path / "eval.npz").info == evaluation.info


def test_large_sets_stay_files_and_give_the_same_images(photos, tmp_path, monkeypatch):
    array = prepare(photos).training
    monkeypatch.setattr(preparation, "ARRAY_BYTES", 1000)
    files = prepare(photos, resize=40).training
    assert isinstance(files.image, list) and files.shape == (3, 32, 32) and files.resize == 40
    np.testing.assert_array_equal(files.label, array.label)
    files = prepare(photos).training
    assert files.mean == array.mean and files.std == array.std
    data.write_train(tmp_path / "train.npz", files)
    again = data.read_train(tmp_path / "train.npz")
    assert again.image == files.image and again.info == files.info
    read = read_image(again.image[11], shape=again.shape, resize=again.resize)
    np.testing.assert_array_equal(read, array.image[11])


def test_a_core_network_may_see_the_files_at_its_own_size(photos, tmp_path):
    dataset = params.Dataset(name="folder", path=str(photos), size=32, stride=3)
    prepared = data.prepare(dataset, 2, core_size=48)
    evaluation = prepared.evaluation
    assert evaluation.shape == (3, 32, 32) and evaluation.for_core.shape == (7, 48, 48, 3)
    file = sorted((photos / "test" / "circle").iterdir())[3]
    np.testing.assert_array_equal(evaluation.core_image[1], read_image(file, shape=(3, 48, 48)))
    data.write_eval(tmp_path / "eval.npz", evaluation)
    again = data.read_eval(tmp_path / "eval.npz")
    np.testing.assert_array_equal(again.core_image, evaluation.core_image)
    assert data.read_info(tmp_path / "eval.npz") == evaluation.info
    data.write_eval(
        tmp_path / "eval.npz", dataclasses.replace(evaluation, core_image=evaluation.for_core[1:])
    )
    with pytest.raises(InputError, match="6 images for the core network"):
        data.read_eval(tmp_path / "eval.npz")
    same = data.prepare(dataset, core_size=32).evaluation
    assert same.core_image is None and same.for_core is same.image


def test_a_core_network_trains_on_the_files_at_its_own_size(photos, tmp_path, monkeypatch):
    dataset = params.Dataset(name="folder", path=str(photos), size=32, stride=3)
    training = data.prepare(dataset, core_size=48).training
    assert training.shape == (3, 32, 32) and training.mean == prepare(photos).training.mean
    file = sorted((photos / "train" / "cross").iterdir())[1]
    expected = read_image(file, shape=(3, 48, 48))
    np.testing.assert_array_equal(training.core_image[7], expected)
    path = tmp_path / "train.npz"
    data.write_train(path, training)
    again = data.read_train(path)
    assert data.read_info(path) == training.info
    for_core = at_size(again, 48)
    np.testing.assert_array_equal(for_core.image[7], expected)
    assert for_core.shape == (3, 48, 48) and for_core.core_image is None
    assert for_core.label.tolist() == training.label.tolist()
    for damaged in (training.core_image[1:], training.core_image[..., :1]):
        data.write_train(path, dataclasses.replace(training, core_image=damaged))
        with pytest.raises(InputError, match="(29|30) images for the core network, of shape"):
            data.read_train(path)
    bytes_each = 3 * (32**2 + 48**2)  # both arrays count
    monkeypatch.setattr(preparation, "ARRAY_BYTES", 30 * bytes_each)
    assert data.prepare(dataset, core_size=48).training.core_image is not None
    monkeypatch.setattr(preparation, "ARRAY_BYTES", 30 * bytes_each - 1)
    files = data.prepare(dataset, core_size=48).training
    assert isinstance(files.image, list) and files.core_image is None


def test_unreadable_files_are_left_out_of_both_arrays(photos):
    broken = sorted((photos / "train" / "dots").iterdir())[2]
    broken.write_bytes(broken.read_bytes()[:-2000])  # the header is whole
    dataset = params.Dataset(
        name="folder", path=str(photos), size=32, stride=3, skip_unreadable=True
    )
    training = data.prepare(dataset, core_size=48).training
    assert len(training.image) == len(training.core_image) == len(training.label) == 29
    file = sorted((photos / "train" / "dots").iterdir())[3]
    np.testing.assert_array_equal(training.image[14], read_image(file, shape=(3, 32, 32)))
    np.testing.assert_array_equal(training.core_image[14], read_image(file, shape=(3, 48, 48)))


def test_training_images_at_the_size_of_one_network(photos, monkeypatch):
    array = at_size(prepare(photos).training, 40)
    assert array.image.shape == (30, 40, 40, 3) and array.mean == prepare(photos).training.mean
    monkeypatch.setattr(preparation, "ARRAY_BYTES", 1000)
    files = prepare(photos).training
    assert at_size(files, 40).shape == (3, 40, 40) and at_size(files, 40).image == files.image


def test_a_folder_in_the_project_may_move_with_it(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "ARRAY_BYTES", 1000)
    for project in ("one", "two"):
        (tmp_path / project / ".dvc").mkdir(parents=True)
        fill(tmp_path / project / "photos" / "train")
        fill(tmp_path / project / "photos" / "val", seed=1)
    monkeypatch.chdir(tmp_path / "one")
    data.write_train(tmp_path / "train.npz", prepare(Path("photos")).training)
    monkeypatch.chdir(tmp_path / "two")
    there = data.read_train(tmp_path / "train.npz").image
    assert there[0] == (tmp_path / "two/photos/train/circle/00.png").resolve()


def test_one_tree_is_split_by_a_seed_and_a_share(tmp_path):
    tree = fill(tmp_path / "tree", images=10)
    first = prepare(tree, split=0.3)
    assert len(first.evaluation.label) == 15 and len(first.training.label) == 35
    assert np.bincount(first.evaluation.label).tolist() == [3] * 5
    same = prepare(tree, split=0.3)
    np.testing.assert_array_equal(same.evaluation.image, first.evaluation.image)
    other = prepare(tree, split=0.3, settings={"seed": 1})
    assert not np.array_equal(other.evaluation.image, first.evaluation.image)
    together = np.concatenate([first.evaluation.image, first.training.image])
    again = np.concatenate([other.evaluation.image, other.training.image])
    assert sorted(map(bytes, together)) == sorted(map(bytes, again))


def test_other_classes_do_not_change_the_split_of_a_class(tmp_path):
    few = prepare(fill(tmp_path / "few", images=10, classes=CLASSES[1:3])).evaluation
    for count in range(10):  # one more class, before the others
        path = tmp_path / "few" / "a" / f"{count}.png"
        path.parent.mkdir(exist_ok=True)
        picture(np.random.default_rng(count), 4, (40, 40)).save(path)
    more = prepare(tmp_path / "few").evaluation
    np.testing.assert_array_equal(more.image[more.label == 1], few.image[few.label == 0])


def test_images_of_one_size_need_no_size(tmp_path):
    for part in ("train", "val"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            for count in range(3):
                grey = np.random.default_rng(count).integers(0, 256, (20, 30), dtype=np.uint8)
                Image.fromarray(grey).save(tmp_path / part / name / f"{part}{count}.png")
    prepared = prepare(tmp_path, size=None)
    assert prepared.evaluation.shape == prepared.training.shape == (1, 20, 30)  # grey, too
    picture(np.random.default_rng(0), 0, (30, 20)).save(tmp_path / "train" / "a" / "colour.png")
    assert prepare(tmp_path, size=None).evaluation.shape == (3, 20, 30)


def test_without_training_images_published_networks_can_be_certified(tmp_path, capsys):
    fill(tmp_path / "photos" / "val")
    prepared = prepare(tmp_path / "photos")
    assert len(prepared.evaluation.label) == 20 and len(prepared.training.label) == 0
    assert "no training images" in capsys.readouterr().err


def test_the_camera_may_be_turned(photos):
    path = photos / "test" / "circle" / "00.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    path.unlink()
    turned = picture(np.random.default_rng(9), 0, (200, 100))
    turned.save(path.with_suffix(".jpg"), exif=exif, quality=95)
    upright = prepare(photos).evaluation.image[0].astype(int)
    expected = np.asarray(turned.rotate(-90, expand=True).resize((32, 64)).crop((0, 16, 32, 48)))
    assert np.abs(upright - expected).mean() < 10


# --- mistakes ---


def test_no_images(tmp_path):
    fails("dataset.path='.*nowhere' does not exist", tmp_path / "nowhere")
    fails("holds no images in folders of classes: expected train/<class>", tmp_path)
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "test" / "cat").mkdir(parents=True)
    (tmp_path / "test" / "cat" / "notes.txt").write_text("no image")
    fails("holds no images in folders of classes", tmp_path)
    (tmp_path / "file").write_text("")
    fails("is a file: expected a folder", tmp_path / "file")
    with pytest.raises(InputError, match="dataset.path is not set: folder needs the path"):
        data.prepare(params.Dataset(name="folder"))


def test_no_test_images(tmp_path):
    fill(tmp_path / "train")
    fails("has a folder train, and none of test, val", tmp_path)
    (tmp_path / "test" / "circle").mkdir(parents=True)
    fails("has no test images", tmp_path)


def test_one_class(tmp_path):
    fill(tmp_path / "tree", classes=["cat"])
    fails(r"has 1 class \(cat\): expected at least 2", tmp_path / "tree")


def test_a_class_that_is_never_trained(photos):
    (photos / "train" / "square").rename(photos.parent / "square")
    fails("test has class 'square', which .*train lacks", photos)
    (photos / "train" / "square").mkdir()
    fails("class 'square' without training images", photos)


def test_a_class_that_is_never_tested_is_said(photos, capsys):
    (photos / "test" / "square").rename(photos.parent / "square")
    prepared = prepare(photos)
    assert prepared.evaluation.classes == CLASSES
    said = capsys.readouterr().err
    assert "1 of 5 classes have training images and no test images ('square')" in said
    (photos.parent / "square").rename(photos / "test" / "square")
    prepare(photos)
    assert "no test images" not in capsys.readouterr().err


def test_a_class_of_one_image_cannot_be_split(tmp_path):
    fill(tmp_path / "tree", classes=["cat", "dog"])
    fill(tmp_path / "tree", images=1, classes=["owl"])
    fails("class 'owl' has one image", tmp_path / "tree")


def test_unreadable_files_are_named_and_counted_and_skipped_if_asked(photos, capsys):
    broken = [photos / "train" / name / "99.png" for name in CLASSES]
    for path in broken:
        path.write_bytes(b"no image")
    cut = sorted((photos / "test" / "dots").iterdir())[2]  # image 10 of the test set
    cut.write_bytes(cut.read_bytes()[:-2000])
    message = fails("5 of 35 images cannot be read", photos)
    assert str(broken[0]) in message and "and 2 more" in message and "skip_unreadable" in message
    prepared = prepare(photos, skip_unreadable=True)
    said = capsys.readouterr().err
    assert "5 of 35 images cannot be read" in said and "1 of 20 images cannot be read" in said
    assert len(prepared.training.label) == 30 and len(prepared.evaluation.label) == 19
    assert 10 not in prepared.evaluation.index.tolist()
    for path in photos.rglob("*.*"):
        path.write_bytes(b"no image")
    fails("none of 35 images can be read", photos, skip_unreadable=True)


def test_the_same_image_in_training_and_test_is_said(photos, capsys):
    copied = (photos / "train" / "cross" / "00.jpg").read_bytes()
    (photos / "test" / "cross" / "copy.jpg").write_bytes(copied)
    prepare(photos)
    said = capsys.readouterr().err
    assert "1 of 21 test images are also training images" in said
    assert "copy.jpg" in said and "00.jpg" in said


def test_fewer_images_than_the_stride(photos):
    fails("dataset.stride=21: there are only 20 test images", photos, stride=21)


def test_sizes_that_do_not_fit(photos):
    message = fails("dataset.size is not set, and the images have 4 sizes", photos, size=None)
    assert "64 x 64 to 500 x 300" in message
    fails("dataset.resize=20 is smaller than the images", photos, resize=20)


def test_unknown_settings(photos):
    fails(
        r"dataset.settings.sed=1 is unknown to folder: expected seed, mirror",
        photos,
        settings={"sed": 1},
    )


def test_divide_takes_a_share_of_every_class():
    part = splits.Part(np.zeros((12, 2, 2, 1), np.uint8), np.repeat([0, 1], [10, 2]))
    train, test = splits.divide(part, ["a", "b"], share=0.01, seed=0)
    assert np.bincount(test.label).tolist() == [1, 1] and np.bincount(train.label).tolist() == [
        9,
        1,
    ]


# --- the stage ---


def test_the_stage_writes_what_later_stages_need(photos, tmp_path, monkeypatch):
    """A few lines of parameters; the rest are defaults."""
    from stages.subsample import subsample

    monkeypatch.chdir(tmp_path)
    text = "dataset: {name: folder, path: photos, size: 24, stride: 2}\n"
    Path("params.yaml").write_text(text)
    with pytest.raises(InputError, match="stride=2 leaves 10 test images .*loss=0.02 needs 203"):
        subsample(params.load("params.yaml"), run=None)
    Path("params.yaml").write_text(f"{text}calibrate: {{loss: 0.4}}\n")
    loaded = params.load("params.yaml")
    summary = subsample(loaded, run=None)
    assert summary["images"] == summary["calibration_images"] == 10
    assert (summary["training_images"], summary["classes"]) == (30, 5)
    evaluation = data.read_eval("data/folder/eval.npz")
    calibration = data.read_eval("data/folder/calibration.npz")
    training = data.read_train("data/folder/train.npz")
    assert evaluation.info == calibration.info == training.info == data.info("folder")
    assert not set(evaluation.index) & set(calibration.index)
