"""Image files of every kind become the array the networks see."""

import numpy as np
import pytest
from PIL import Image

from aces.data.images import read_image, read_images
from aces.errors import InputError

CIFAR = (3, 32, 32)


def save(folder, image: Image.Image, name: str = "image.png", **options):
    path = folder / name
    image.save(path, **options)
    return path


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F"]
)
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (300, 7), (32, 32), (640, 480)])
@pytest.mark.parametrize("shape", [CIFAR, (1, 8, 8)])
def test_every_mode_and_size_gives_the_shape_asked_for(tmp_path, mode, size, shape):
    if mode == "I;16":
        image = Image.fromarray(np.full(size[::-1], 65535 // 2, dtype=np.uint16))
    else:
        image = Image.new("L", size, 127).convert(mode)
    array = read_image(save(tmp_path, image, name="image.tiff"), shape=shape)
    assert array.shape == (shape[1], shape[2], shape[0]) and array.dtype == np.uint8
    if mode != "1":  # which has no grey
        assert np.abs(array.astype(int) - 127).max() <= 2


def test_an_image_of_the_right_size_is_unchanged(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    path = save(tmp_path, Image.fromarray(pixels))
    np.testing.assert_array_equal(read_image(path, shape=CIFAR), pixels)
    np.testing.assert_array_equal(read_images([path, path], shape=CIFAR), [pixels, pixels])


def test_resize_then_crop_is_torchvisions(tmp_path):
    from torchvision import transforms

    from aces.vision import torchvision

    assert torchvision
    usual = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    for size in [(500, 375), (301, 517), (224, 224), (1000, 257)]:
        noise = Image.fromarray(
            np.random.default_rng(1).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
        )
        array = read_image(save(tmp_path, noise), shape=(3, 224, 224), resize=256)
        np.testing.assert_array_equal(array, np.asarray(usual(noise)), err_msg=str(size))


def test_transparent_pixels_are_white(tmp_path):
    assert (
        read_image(save(tmp_path, Image.new("RGBA", (8, 8), (255, 0, 0, 0))), shape=(3, 8, 8))
        == 255
    ).all()


def test_the_cameras_orientation_is_applied(tmp_path):
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[:16] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    array = read_image(save(tmp_path, Image.fromarray(pixels), exif=exif), shape=CIFAR)
    np.testing.assert_array_equal(array, pixels[::-1])


def test_a_dark_sixteen_bit_image_stays_dark(tmp_path):
    path = save(tmp_path, Image.fromarray(np.full((8, 8), 200, dtype=np.uint16)))
    assert read_image(path, shape=(1, 8, 8)).max() == 1  # 200 of 65535


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("not an image"), "no format that Pillow reads"),
        (lambda path: path.write_bytes(b""), "no format that Pillow reads"),
    ],
)
def test_what_is_no_image_is_named(tmp_path, make, message):
    path = tmp_path / "image.png"
    make(path)
    with pytest.raises(InputError, match=message) as caught:
        read_image(path, shape=CIFAR)
    assert str(path) in str(caught.value)


def test_a_truncated_image_is_named(tmp_path):
    path = save(
        tmp_path,
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8)),
    )
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="cannot be read"):
        read_image(path, shape=CIFAR)


def test_values_of_no_known_range_are_refused(tmp_path):
    path = save(
        tmp_path, Image.fromarray(np.full((8, 8), -3.0, dtype=np.float32)), name="image.tiff"
    )
    with pytest.raises(InputError, match="values from -3"):
        read_image(path, shape=CIFAR)
