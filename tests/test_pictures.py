"""Bytes to pixels: every mode read rightly, every bad file named."""

import io
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedgala.data import decode
from fedgala.data.decode import in_order, map_images
from fedgala.data.listing import PictureError
from fedgala.data.pictures import _draft, probe, read_picture

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gray16(*values: int) -> Image.Image:
    return Image.fromarray(np.array([values], np.uint16))


def palette(*colours: tuple[int, int, int]) -> Image.Image:
    image = Image.new("P", (len(colours), 1))
    image.putpalette([value for colour in colours for value in colour])
    image.putdata(range(len(colours)))
    return image


def row(mode: str, *pixels: Any) -> Image.Image:
    image = Image.new(mode, (len(pixels), 1))
    image.putdata(pixels)
    return image


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(width: int, height: int, depth: int, colour: int, *lines: bytes) -> bytes:
    """What Pillow does not write: 16-bit colour, and headers that promise more than there is."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def big_endian_tiff(*values: int) -> bytes:
    """Pillow reads 16-bit TIFFs of either byte order but writes only its own."""
    size = 2 * len(values)
    fields = {256: len(values), 257: 1, 258: 16, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: size}
    entries = b"".join(struct.pack(">HHIHxx", tag, 3, 1, value) for tag, value in fields.items())
    body = struct.pack(f">{len(values)}H", *values)
    return struct.pack(">2sHI", b"MM", 42, 8 + size) + body + struct.pack(">H", len(fields)) + entries + bytes(4)


MODES: dict[str, tuple[bytes, Sequence[Any]]] = {
    "gray": (encoded(row("L", 0, 7, 255)), [0, 7, 255]),
    "1 bit": (encoded(row("1", 0, 255)), [0, 255]),
    "16 bit": (encoded(gray16(0, 255, 256, 0x8000, 0xFFFF)), [0, 0, 1, 128, 255]),
    "16 bit tiff": (encoded(gray16(0, 511, 0xFFFF), "TIFF"), [0, 1, 255]),
    "16 bit tiff, big end first": (big_endian_tiff(0, 511, 0xFFFF), [0, 1, 255]),
    "16 bit pgm": (b"P5 3 1 65535\n" + struct.pack(">3H", 0, 511, 0xFFFF), [0, 1, 255]),
    "16 bit, one level clear": (encoded(gray16(0, 300, 512), transparency=300), [0, 255, 2]),
    "gray and alpha": (encoded(row("LA", (0, 255), (0, 0), (100, 51))), [0, 255, 224]),
    "colour": (encoded(row("RGB", RED, (1, 2, 3))), [RED, (1, 2, 3)]),
    "16 bit colour": (raw_png(2, 1, 16, 2, struct.pack(">6H", 0xFFFF, 0, 511, 256, 0, 0)), [(255, 0, 1), (1, 0, 0)]),
    "palette": (encoded(palette(RED, BLUE)), [RED, BLUE]),
    "palette, one clear": (encoded(palette(RED, BLUE), transparency=1), [RED, WHITE]),
    "palette, half clear": (encoded(palette(RED, BLUE), transparency=bytes([255, 51])), [RED, (204, 204, 255)]),
    "gif, one clear": (encoded(palette(RED, BLUE), "GIF", transparency=0), [WHITE, BLUE]),
    "alpha": (encoded(row("RGBA", (*RED, 255), (*RED, 0), (0, 0, 0, 51))), [RED, WHITE, (204, 204, 204)]),
    "alpha webp": (encoded(row("RGBA", (*RED, 255), (*RED, 0)), "WEBP", lossless=True), [RED, WHITE]),
    "one colour clear": (encoded(row("RGB", RED, BLUE), transparency=RED), [WHITE, BLUE]),
    "cmyk": (
        encoded(row("CMYK", (0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)), "TIFF"),
        [WHITE, (0, 255, 255), (0, 0, 0)],
    ),
    "animated": (
        encoded(palette(RED, BLUE), "GIF", save_all=True, append_images=[palette(BLUE, RED)]),
        [RED, BLUE],
    ),
    "bmp": (encoded(row("RGB", RED, BLUE), "BMP"), [RED, BLUE]),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_is_read_rightly(name: str) -> None:
    data, expected = MODES[name]
    pixels = np.array([expected], np.uint8)
    gray = pixels.ndim == 2
    assert probe(data) == (pixels.shape[1], gray)
    np.testing.assert_array_equal(read_picture(data, 128, 1 if gray else 3), pixels)
    if gray:  # beside coloured pictures
        np.testing.assert_array_equal(read_picture(data, 128, 3), np.repeat(pixels[..., None], 3, axis=2))


def test_cmyk_jpeg_is_not_inverted() -> None:
    pixels = read_picture(encoded(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG"), 16, 3)
    assert np.abs(pixels.astype(int) - (0, 255, 255)).max() <= 2


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_undone(kind: str) -> None:
    upright = np.array([[10, 20, 30], [40, 50, 60]], np.uint8)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
        9: upright,  # no such orientation
    }
    for orientation, pixels in stored.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
        image = Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")
        data = encoded(image, kind, exif=exif, **options)
        assert probe(data)[0] == 3
        np.testing.assert_array_equal(read_picture(data, 8, 3)[..., 0], upright)


def test_broken_metadata_does_not_cost_the_picture() -> None:
    data = encoded(row("L", 1, 2), exif=b"Exif\0\0nonsense")
    np.testing.assert_array_equal(read_picture(data, 8, 1), [[1, 2]])


def test_large_pictures_shrink_without_aliasing_and_small_ones_keep_their_pixels() -> None:
    checks = Image.fromarray((np.indices((200, 400)).sum(0) % 2 * 255).astype(np.uint8))
    shrunk = read_picture(encoded(checks), 64, 1)
    assert shrunk.shape == (32, 64)
    assert abs(shrunk[2:-2, 2:-2].astype(float) - 127.5).max() < 8
    assert read_picture(encoded(Image.new("L", (3, 2000))), 64, 1).shape == (64, 1)
    assert read_picture(encoded(checks), 400, 1).shape == (200, 400)


def test_a_jpeg_decoded_at_a_fraction_looks_as_one_decoded_whole() -> None:
    y, x = np.indices((750, 1000)) / 40
    image = Image.fromarray((127 + 60 * np.stack([np.sin(x), np.cos(y), np.sin(x + y)], 2)).astype(np.uint8))
    data = encoded(image, "JPEG", quality=95)
    whole = np.asarray(Image.open(io.BytesIO(data)).resize((100, 75), Image.Resampling.BICUBIC))
    opened = Image.open(io.BytesIO(data))
    _draft(opened, 100)
    assert opened.size == (250, 188)  # a quarter: at least twice what is asked for
    drafted = read_picture(data, 100, 3)
    assert drafted.shape == whole.shape
    assert np.abs(drafted.astype(int) - whole).max() <= 5


PHOTO = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)), "JPEG")
BAD: dict[str, tuple[bytes, str]] = {
    "cut.jpg": (PHOTO[:-200], "truncated"),
    "cut.webp": (encoded(Image.open(io.BytesIO(PHOTO)), "WEBP")[:-50], "truncated"),
    "cut.png": (encoded(Image.open(io.BytesIO(PHOTO)))[:-500], "truncated"),
    "flipped.png": (encoded(row("L", 1, 2, 3)).replace(b"IDAT", b"IDAT\xff"), "damaged"),
    "empty.jpg": (b"", "empty file"),
    "text.jpg": (b"<html>404 Not Found</html>", "not an image"),
    "script.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    "bomb.png": (raw_png(20_000, 20_000, 8, 0, b""), "too many pixels, at most 100 million are read"),
    "large.png": (raw_png(10_500, 10_500, 8, 0, b""), "10500 x 10500 pixels, at most 100 million are read"),
    "float.tif": (encoded(Image.new("F", (2, 2), 0.5), "TIFF"), "floating-point pixels, 8 or 16 bits are read"),
    "deep.tif": (encoded(Image.new("I", (2, 2), 1 << 20), "TIFF"), "32-bit pixels, 8 or 16 bits are read"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_cannot_be_read_is_said_in_a_few_words(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(PictureError) as caught:
        probe(data)
        read_picture(data, 128, 3)
    assert str(caught.value) == reason


@pytest.mark.parametrize("name", MODES)
@pytest.mark.filterwarnings("ignore:.*:Warning:PIL")
def test_damage_of_any_kind_is_a_picture_error(name: str) -> None:
    data = MODES[name][0]
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = np.frombuffer(data, np.uint8)[: rng.integers(1, len(data) + 1)].copy()
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        try:
            probe(damaged.tobytes())
            read_picture(damaged.tobytes(), 8, 3)
        except PictureError as error:
            assert str(error)


def test_threads_keep_order_and_do_not_run_ahead() -> None:
    started: list[int] = []

    def work(part: Sequence[int]) -> list[int]:
        started.extend(part)
        return list(part)

    results = in_order(work, range(1000), 2)
    assert next(results) == [0, 1]
    assert len(started) <= 2 * (decode.THREADS + 1)
    assert [number for part in results for number in part] == list(range(2, 1000))


@pytest.mark.skipif(sys.platform != "linux", reason="files with holes and strict memory accounting are Linux's")
def test_more_pictures_than_memory_can_be_mapped(tmp_path: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shape = (memory // (1 << 19), 1, 1 << 10, 1 << 10)  # twice as many bytes
    path = tmp_path / "images.npy"
    with open(path, "wb") as file:
        decode._write_header(file, shape)
        file.truncate(file.tell() + 2 * memory + (1 << 20))
    images = map_images(path)
    assert images.shape == shape
    images[-1, 0, 0, 0] = 7
    assert map_images(path)[-1, 0, 0, 0] == 0
