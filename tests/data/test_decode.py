"""Images of any mode become uint8 pixels; files that are not images are refused."""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from uiat.data.images import Images, resize
from uiat.data.packing import ImageFacts, image_facts
from uiat.data.pixels import opened, to_pixels

RGB = np.arange(8 * 10 * 3, dtype=np.uint8).reshape(8, 10, 3)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> io.BytesIO:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    stream.seek(0)
    return stream


def look(stream: io.BytesIO) -> ImageFacts:
    with opened(stream) as image:
        return image_facts(image)


def pixels(stream: io.BytesIO, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    with opened(stream) as image:
        return to_pixels(image, size, grey).numpy()


def decoded(stream: io.BytesIO, grey: bool = False) -> NDArray[np.uint8]:
    facts = look(stream)
    stream.seek(0)
    found = pixels(stream, (facts.height, facts.width), grey)
    assert found.dtype == np.uint8
    assert found.shape == (1 if grey else 3, facts.height, facts.width)
    return found


def test_rgb_is_unchanged() -> None:
    assert np.array_equal(decoded(saved(Image.fromarray(RGB))), RGB.transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_formats(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decoded(saved(Image.fromarray(RGB), kind, **options)), RGB.transpose(2, 0, 1))


def test_grey_stays_grey_or_is_repeated() -> None:
    grey = Image.fromarray(RGB[:, :, 0])
    assert look(saved(grey)).grey
    assert np.array_equal(decoded(saved(grey), grey=True)[0], RGB[:, :, 0])
    assert np.array_equal(decoded(saved(grey)), np.stack([RGB[:, :, 0]] * 3))


def test_one_bit() -> None:
    bits = RGB[:, :, 0] % 2 * 255
    image = Image.fromarray(bits).convert("1", dither=Image.Dither.NONE)
    assert look(saved(image)).grey
    assert np.array_equal(decoded(saved(image), grey=True)[0], bits)


def test_sixteen_bits_are_scaled_not_cut() -> None:
    values = np.linspace(0, 65535, 80).round().astype(np.uint16).reshape(8, 10)
    stream = saved(Image.fromarray(values))
    assert look(stream).grey
    stream.seek(0)
    assert np.array_equal(decoded(stream, grey=True)[0], np.rint(values / 257).astype(np.uint8))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_without_a_known_range_are_refused(kind: type) -> None:
    stream = saved(Image.fromarray(np.ones((8, 8), kind)), "TIFF")
    with pytest.raises(ValueError, match="32 bits and an unknown range"):
        pixels(stream, (8, 8), True)


def test_palette() -> None:
    image = Image.fromarray(np.repeat(np.array([[[255, 0, 0], [0, 9, 255]]], np.uint8), 8, axis=0)).quantize(2)
    assert image.mode == "P"
    assert not look(saved(image)).grey
    assert np.array_equal(decoded(saved(image))[:, 0], np.array([[255, 0], [0, 9], [0, 255]]))


def test_transparency_lies_on_white() -> None:
    rgba = np.dstack([RGB, np.full((8, 10), 255, np.uint8)])
    rgba[0, :, 3] = 0
    found = decoded(saved(Image.fromarray(rgba)))
    assert (found[:, 0] == 255).all()
    assert np.array_equal(found[:, 1:], RGB[1:].transpose(2, 0, 1))
    half = np.array([[[0, 0, 0, 51]]], np.uint8).repeat(8, 0).repeat(8, 1)
    assert np.unique(decoded(saved(Image.fromarray(half)))).tolist() == [204]


def test_grey_with_transparency() -> None:
    both = np.dstack([RGB[:, :, 0], np.full((8, 10), 255, np.uint8)])
    both[3, :, 1] = 0
    stream = saved(Image.fromarray(both))
    assert look(stream).grey
    found = decoded(stream, grey=True)[0]
    assert (found[3] == 255).all()
    assert np.array_equal(found[4:], RGB[4:, :, 0])


def test_a_transparent_colour_of_a_palette() -> None:
    image = Image.fromarray(np.repeat(np.array([[[255, 0, 0], [0, 9, 255]]], np.uint8), 8, axis=0)).quantize(2)
    index = int(np.asarray(image)[0, 0])
    found = decoded(saved(image, transparency=index))
    assert found[:, 0, 0].tolist() == [255, 255, 255]
    assert found[:, 0, 1].tolist() == [0, 9, 255]


def test_cmyk() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    stream = saved(image, "JPEG", quality=95)
    assert not look(stream).grey
    red, green, blue = decoded(stream)[:, 4, 4].tolist()
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int, kind: str) -> None:
    image = Image.new("RGB", (16, 8))
    image.paste((255, 255, 255), (0, 0, 8, 4))  # the corner that the file has at its top left
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = saved(image, kind, exif=exif, **({"quality": 95} if kind == "JPEG" else {}))
    facts = look(stream)
    assert (facts.height, facts.width) == ((16, 8) if orientation > 4 else (8, 16))
    stream.seek(0)
    found = decoded(stream)[0]
    corners = found[0, 0], found[0, -1], found[-1, -1], found[-1, 0]
    # EXIF's orientations put it top left, top right, bottom right, bottom left, and once more in this order.
    assert [k for k, value in enumerate(corners) if value > 128] == [(orientation - 1) % 4]


def test_resizing_averages_what_shrinks_and_keeps_flat_images_flat() -> None:
    stripes = np.zeros((32, 32), np.uint8)
    stripes[:, ::2] = 255
    found = pixels(saved(Image.fromarray(stripes)), (8, 8), True)[0]
    assert abs(found[1:-1, 1:-1].astype(int) - 128).max() < 12
    flat = pixels(saved(Image.new("RGB", (33, 17), (10, 20, 30))), (24, 9), False)
    assert flat.shape == (3, 24, 9)
    assert [np.unique(channel).tolist() for channel in flat] == [[10], [20], [30]]


@pytest.mark.parametrize("size", [(8, 8), (9, 24), (40, 12), (64, 50)])
def test_files_are_resampled_as_arrays_are(size: tuple[int, int]) -> None:
    """A folder of images and the same images as an .npz, resized by --data.size, are the same data."""
    x = torch.randint(256, (1, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    picture = saved(Image.fromarray(x[0].permute(1, 2, 0).numpy()))
    expected = resize(Images(x, torch.tensor([0]), ("a", "b")), size).x[0]
    assert np.array_equal(pixels(picture, size, False), expected.numpy())


def test_an_animation_gives_its_first_picture() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    stream = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decoded(stream)[:, 0, 0].tolist() == [255, 0, 0]


def bomb(side: int) -> io.BytesIO:
    """Return a PNG that claims side × side pixels in a hundred bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + body)


@pytest.mark.parametrize("side", [9_500, 14_000, 60_000])
def test_a_decompression_bomb_is_refused(side: int) -> None:
    with pytest.raises(ValueError, match="refused as a decompression bomb"):
        look(bomb(side))
    with pytest.raises(ValueError, match="refused as a decompression bomb"):
        pixels(bomb(side), (8, 8), False)


def test_a_program_is_no_image() -> None:
    stream = saved(Image.fromarray(RGB), "EPS")
    with pytest.raises(ValueError, match="not an image of a known format"):
        look(stream)


@settings(max_examples=60)
@given(st.data())
def test_damaged_bytes_raise_or_give_an_image(data: st.DataObject) -> None:
    """Damage raises an exception that can be quoted in an error message; it never crashes or changes the shape."""
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP"]))
    content = bytearray(saved(Image.fromarray(RGB), kind).getvalue())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(content)))
    with suppress(Exception):
        found = pixels(io.BytesIO(bytes(content[:cut])), (8, 10), False)
        if found.shape != (3, 8, 10):
            pytest.fail(f"{found.shape}")
