"""Image files of every kind become the array the networks see."""

import os
import resource
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from aces.data import images
from aces.data.images import read_crop, read_header, read_image, read_images
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
    from aces.vision import torchvision

    transforms = torchvision.transforms
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


@pytest.mark.parametrize("value, shown", [(-3.0, "-3"), (70_000.0, "70000"), (np.nan, "nan")])
def test_values_of_no_known_range_are_refused(tmp_path, value, shown):
    image = Image.fromarray(np.full((8, 8), value, dtype=np.float32))
    message = f"values from {shown} to {shown}, expected 0 to 1, 255 or 65535"
    for given in (image, save(tmp_path, image, name="image.tiff")):
        with pytest.raises(InputError, match=message):
            read_image(given, shape=CIFAR)


def test_an_image_that_pillow_opened_is_judged_like_its_file(tmp_path):
    path = tmp_path / "long.png"
    path.write_bytes(png_of(1, 60_000))
    for image, message in (
        (Image.new("L", (0, 5)), "image from memory has no pixels .0 x 5."),
        (Image.open(path), "has 1 x 60000 pixels: expected sides of at most 100 : 1"),
    ):
        with pytest.raises(InputError, match=message):
            read_image(image, shape=CIFAR)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8))
    cut = save(tmp_path, noise)
    with Image.open(cut) as whole:
        read_image(whole, shape=CIFAR)
        assert whole.getpixel((0, 0)) == noise.getpixel((0, 0))  # it was not closed
    cut.write_bytes(cut.read_bytes()[:5000])
    with pytest.raises(InputError, match="image from memory cannot be read .*: is it complete?"):
        read_image(Image.open(cut), shape=CIFAR)


# --- what must not take the memory, the time or the program ---


def png_of(width: int, height: int) -> bytes:
    """A valid PNG of so many black pixels, in a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 7) // 8 + 1) * height, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "size, message",
    [
        ((1, 60_000), "has 1 x 60000 pixels: expected sides of at most 100 : 1; crop it"),
        ((60_000, 1), "has 60000 x 1 pixels: expected sides"),
        ((9_000, 9_000), "has 9000 x 9000 pixels: expected at most 80,000,000"),
        ((20_000, 20_000), "has more than 80,000,000 pixels"),
    ],
)
def test_an_absurd_size_is_refused_before_a_pixel_is_decoded(tmp_path, size, message, monkeypatch):
    path = tmp_path / "large.png"
    path.write_bytes(png_of(*size))
    monkeypatch.setattr(Image.Image, "resize", lambda *_, **__: pytest.fail("it was resized"))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("it was decoded"))
    for read in (
        lambda: read_image(path, shape=(3, 224, 224), resize=256),
        lambda: read_header(path),
        lambda: read_crop(path, shape=CIFAR, choose=lambda width, height: (0, 0, 1, 1)),
    ):
        with pytest.raises(InputError, match=message):
            read()


def test_a_large_crop_of_a_long_image_is_refused(tmp_path):
    """2 x 200 pixels, with a shorter side of 2,000, would be 2,000 x 200,000 pixels."""
    path = save(tmp_path, Image.new("L", (2, 200)))
    with pytest.raises(InputError, match="at most 80,000,000, also after resizing"):
        read_image(path, shape=(3, 2000, 2000))


@pytest.mark.slow
def test_a_small_file_cannot_fill_the_memory(tmp_path):
    """In a process that may take 1.5 GB: the file of 196 bytes that took 14 GB."""
    path = tmp_path / "long.png"
    path.write_bytes(png_of(1, 60_000))
    assert len(path.read_bytes()) < 250
    code = (
        "import sys; from aces.data.images import read_image\n"
        "try: read_image(sys.argv[1], shape=(3, 224, 224), resize=256)\n"
        "except ValueError as error: print(type(error).__name__, error)"
    )
    limit = 3 * 2**29
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert run.stdout.startswith("InputError") and "crop it" in run.stdout, run.stderr


def test_a_png_loads_no_readers_of_rare_formats(tmp_path):
    """Pillow loads all of its readers at once, which takes longer than a small image."""
    path = save(tmp_path, Image.new("RGB", (32, 32)))
    code = (
        "import sys\nfrom aces.data.images import read_image\n"
        "read_image(sys.argv[1], shape=(3, 32, 32))\nprint('PIL.PdfImagePlugin' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_pipes_and_devices_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", "/dev/zero"):
        with pytest.raises(InputError, match="is a pipe or a device: save it to a file"):
            read_image(path, shape=CIFAR)


def test_formats_that_run_other_programs_are_refused(tmp_path):
    """Pillow opens PostScript by Ghostscript."""
    (tmp_path / "image.eps").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(InputError, match="in no format that Pillow reads"):
        read_image(tmp_path / "image.eps", shape=CIFAR)


def test_any_damage_is_one_line(tmp_path):
    """Seeded changes of real files: an image of the right shape, or an InputError of one line."""
    random = np.random.default_rng(7)
    noise = Image.fromarray(random.integers(0, 256, (40, 30, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    for suffix in ("png", "jpg", "gif", "tiff", "bmp", "webp", "ppm", "tga", "jp2", "ico", "dds"):
        path = tmp_path / f"image.{suffix}"
        noise.save(path, **({"exif": exif} if suffix in ("jpg", "png", "tiff") else {}))
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(25):
            damaged = whole.copy()
            places = random.integers(0, min(len(damaged), 600), 4)
            damaged[places] = random.integers(0, 256, 4)
            path.write_bytes(damaged.tobytes()[: random.integers(20, len(damaged) + 1)])
            try:
                assert read_image(path, shape=CIFAR).shape == (32, 32, 3)
            except InputError as error:
                assert "\n" not in str(error) and str(path) in str(error)


def test_damaged_orientation_is_no_orientation(tmp_path, monkeypatch):
    path = save(tmp_path, Image.new("RGB", (32, 32), (1, 2, 3)), name="image.jpg")

    def broken(_):
        raise SyntaxError("not a TIFF file")

    monkeypatch.setattr(Image.Image, "getexif", broken)
    assert read_image(path, shape=CIFAR).shape == (32, 32, 3)


# --- less usual kinds ---


def test_lab_is_converted(tmp_path):
    """sRGB red has L* 53, a* 80 and b* 67; Pillow stores L* 255 / 100, a* + 128 and b* + 128."""
    red = Image.new("LAB", (32, 32), (136, 208, 195))
    array = read_image(save(tmp_path, red, name="image.tiff"), shape=CIFAR)
    assert np.abs(array.astype(int) - (255, 0, 0)).max() <= 12  # of 8-bit values
    assert read_image(tmp_path / "image.tiff", shape=(1, 8, 8)).shape == (8, 8, 1)


def test_of_an_animation_the_first_frame_counts(tmp_path):
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue")]
    for suffix in ("gif", "webp", "png", "tiff"):
        path = tmp_path / f"image.{suffix}"
        lossless = {"lossless": True} if suffix == "webp" else {}
        frames[0].save(path, save_all=True, append_images=frames[1:], **lossless)
        assert (read_image(path, shape=CIFAR) == (255, 0, 0)).all(), suffix


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_that_of_pillow(tmp_path, orientation):
    from PIL import ImageOps

    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path, Image.fromarray(pixels), exif=exif)
    header = read_header(path)
    with Image.open(path) as file:
        upright = ImageOps.exif_transpose(file)
    assert (header.width, header.height) == upright.size
    shape = (3, header.height, header.width)
    np.testing.assert_array_equal(read_image(path, shape=shape), np.asarray(upright))


def test_a_crop_for_training_is_the_part_that_was_chosen(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    path, asked = save(tmp_path, Image.fromarray(pixels)), []

    def choose(width: int, height: int):
        asked.append((width, height))
        return 10, 4, 42, 36

    crop = read_crop(path, shape=CIFAR, choose=choose)
    np.testing.assert_array_equal(crop, pixels[4:36, 10:42])
    assert asked == [(60, 40)] and crop.flags.writeable


def test_the_content_of_a_file_is_read_like_the_file(tmp_path):
    path = save(tmp_path, Image.new("RGB", (50, 40), (9, 8, 7)))
    content = path.read_bytes()
    assert (read_image(content, shape=CIFAR) == read_image(path, shape=CIFAR)).all()
    assert read_header(content) == images.Header(50, 40, grey=False)
    with pytest.raises(InputError, match="image 3 of the set is in no format"):
        read_image(b"nothing", shape=CIFAR, name="3 of the set")
