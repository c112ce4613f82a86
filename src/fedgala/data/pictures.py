"""From bytes to pixels: upright, 8 bits, gray or RGB, no longer than asked for; one picture at a time.

Pillow's own conversions clip 16-bit gray at 255 and turn what is transparent black; here the first is scaled and the
second lies on white. Only the formats named below are tried, so that a file cannot reach Pillow's rarer readers (one
of which starts Ghostscript) by lying about its name.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedgala.data.listing import PictureError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 100_000_000  # a picture of more is taken for a decompression bomb

_SIXTEEN_BITS = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})
_GRAY = _SIXTEEN_BITS | {"1", "L", "LA", "La"}
_UPRIGHT = {  # what undoes each EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112
_DAMAGE: tuple[type[Exception], ...]  # what Pillow's readers raise on bytes that are not what their header promises
_DAMAGE = (ArithmeticError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, TypeError, ValueError)
_DAMAGE += (struct.error, zlib.error)


def probe(data: bytes) -> tuple[int, bool]:
    """The longest side in pixels, and whether the picture is gray, from its header alone."""
    with _damage_named(data):
        image = _open(data)
        return max(image.size), image.mode in _GRAY


def read_picture(data: bytes, size: int, channels: int) -> NDArray[np.uint8]:
    """The pixels, ``(height, width)`` for one channel and ``(height, width, 3)`` for three, no side above `size`."""
    with _damage_named(data):
        image = _open(data)
        _draft(image, size)
        image.load()
        turn = _UPRIGHT.get(_orientation(image))
        image = _flatten(image, "L" if channels == 1 else "RGB")
        image.thumbnail((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
        return np.asarray(image if turn is None else image.transpose(turn))


def _open(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=FORMATS)
    if math.prod(image.size) > MAX_PIXELS:
        raise PictureError(f"{image.width} x {image.height} pixels, at most {MAX_PIXELS // 10**6} million are read")
    if image.mode == "F":
        raise PictureError("floating-point pixels, 8 or 16 bits are read")
    return image


def _draft(image: Image.Image, size: int) -> None:
    """Let a JPEG be decoded at a half, a quarter or an eighth where that leaves twice the resolution asked for."""
    scale = 2 * size / max(image.size)
    if scale < 1:
        image.draft(None, (math.ceil(image.width * scale), math.ceil(image.height * scale)))


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, asked for after loading: a PNG may hold it last, a TIFF is by then upright."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _DAMAGE:  # broken metadata beside good pixels
        return 1


def _flatten(image: Image.Image, mode: str) -> Image.Image:
    """`image` in `mode`, L or RGB, with 16 bits scaled to 8 and transparency on white."""
    if image.mode in _SIXTEEN_BITS:
        image = _eight_bits(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)
    if pixels.min() < 0 or pixels.max() > 0xFFFF:
        raise PictureError("32-bit pixels, 8 or 16 bits are read")
    clear = image.info.get("transparency")  # a PNG may name one gray level that is transparent
    scaled = (pixels // 256).astype(np.uint8)
    return Image.fromarray(scaled if clear is None else np.where(pixels == clear, np.uint8(255), scaled))


@contextmanager
def _damage_named(data: bytes) -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError as error:
        raise PictureError("not an image" if data else "empty file") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError(f"too many pixels, at most {MAX_PIXELS // 10**6} million are read") from error
    except _DAMAGE as error:
        cut = "truncated" in str(error).lower() or _short_of_its_riff(data)
        raise PictureError("truncated" if cut else "damaged") from error


def _short_of_its_riff(data: bytes) -> bool:
    """Whether a WebP ends before its header says: its decoder only knows that something is wrong."""
    return data[:4] == b"RIFF" and int.from_bytes(data[4:8], "little") + 8 > len(data)
