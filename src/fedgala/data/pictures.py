"""From bytes to pixels: upright, 8 bits, gray or RGB, no longer than asked for; one picture, or many in a few threads.

Pillow's own conversions clip 16-bit gray at 255 and turn what is transparent black; here the first is scaled and the
second lies on white. Only the formats named below are tried, so that a file cannot reach Pillow's rarer readers (one
of which starts Ghostscript) by lying about its name.
"""

import io
import math
import mmap
import os
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedgala.data.folder import Item, reason
from fedgala.errors import DataError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
THREADS = min(32, (os.cpu_count() or 1) + 2)
MAX_PIXELS = 100_000_000  # a picture of more is taken for a decompression bomb

_CHUNK, _CHUNK_BYTES = 64, 8 << 20  # pictures and pixels that one thread works on at a time, at most
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000) if sys.platform == "linux" else 0  # named from Python 3.13 on
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

T = TypeVar("T")
R = TypeVar("R")


class PictureError(Exception):
    """Why one picture cannot be used, in a few words."""


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


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that cannot be read as a picture."""

    domain: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a picture before it is decoded."""

    item: Item
    digest: bytes  # of the file
    extent: int = 0  # longest side
    gray: bool = True
    skipped: Skipped | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of a picture once it is decoded, besides its pixels."""

    item: Item
    size: tuple[int, int]  # height and width
    digest: bytes  # of the pixels


def look_at_all(items: Sequence[Item], progress: Callable[[int], None]) -> list[Look]:
    """Read each file whole, for its digest, but no more than the header of its picture; `progress` hears how many."""
    Image.init()  # once, here, rather than by several threads at once
    looks: list[Look] = []
    with closing(_in_order(_look_at, items, _CHUNK)) as results:
        for result in results:
            looks += result
            progress(len(looks))
    return looks


def decode_into(
    file: BinaryIO, looks: Sequence[Look], channels: int, canvas: int, progress: Callable[[int], None]
) -> tuple[list[Picture], list[Skipped]]:
    """Write all pictures to `file` as one ``.npy`` array, uint8 ``(N, channels, canvas, canvas)``.

    Each lies at the top left corner of its canvas, shrunk where it is larger. Returns the N that could be decoded and
    those that could not; the header is written again once N is known, for which NumPy leaves room.
    """
    pictures: list[Picture] = []
    skipped: list[Skipped] = []
    _write_header(file, (len(looks), channels, canvas, canvas))
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // (channels * canvas**2)))
    with closing(_in_order(partial(_decode, channels=channels, canvas=canvas), looks, chunk)) as results:
        for images, decoded, undecoded in results:
            file.write(images.data)
            pictures += decoded
            skipped += undecoded
            progress(len(pictures) + len(skipped))
    file.seek(0)
    _write_header(file, (len(pictures), channels, canvas, canvas))
    return pictures, skipped


def map_images(path: Path) -> NDArray[np.uint8]:
    """What `decode_into` wrote, mapped into memory; torch wants it writable, but nothing is written back.

    NumPy's own way to do so (mode "c") has Linux set aside memory for all of it, and fail where there is less.
    """
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        shape, _, _ = np.lib.format.read_array_header_1_0(file)
        if sys.platform == "win32":
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        else:
            flags, protection = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            mapped = mmap.mmap(file.fileno(), 0, flags, protection)
        return np.ndarray(shape, np.uint8, mapped, file.tell())


def _in_order(work: Callable[[Sequence[T]], R], tasks: Sequence[T], chunk: int) -> Generator[R, None, None]:
    """`work` on `chunk` tasks at a time, results in order; the threads never run far ahead of who reads them.

    Threads, not processes: Pillow decodes without the interpreter's lock, and no pixels need to be sent.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for start in range(0, len(tasks), chunk):
                waiting.append(pool.submit(work, tasks[start : start + chunk]))
                if len(waiting) > THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _look_at(items: Sequence[Item]) -> list[Look]:
    return [_look(item) for item in items]


def _look(item: Item) -> Look:
    try:
        data = item.source.read()
    except (FileNotFoundError, PermissionError) as error:
        return Look(item, b"", skipped=Skipped(item.domain, item.name, reason(error)))
    except OSError as error:  # a failing disk or network: not a property of the picture
        raise DataError(f"'{item.name}' cannot be read ({reason(error)}): try again, or copy the pictures") from error
    digest = _digest(data)
    try:
        extent, gray = probe(data)
    except PictureError as error:
        return Look(item, digest, skipped=Skipped(item.domain, item.name, str(error)))
    return Look(item, digest, extent, gray)


def _decode(
    looks: Sequence[Look], channels: int, canvas: int
) -> tuple[NDArray[np.uint8], list[Picture], list[Skipped]]:
    images = np.zeros((len(looks), channels, canvas, canvas), np.uint8)
    pictures: list[Picture] = []
    skipped: list[Skipped] = []
    for look in looks:
        data = _same_bytes(look)
        try:
            pixels = read_picture(data, canvas, channels)
        except PictureError as error:
            skipped.append(Skipped(look.item.domain, look.item.name, str(error)))
            continue
        height, width = pixels.shape[:2]
        images[len(pictures), :, :height, :width] = np.moveaxis(np.atleast_3d(pixels), 2, 0)
        pictures.append(Picture(look.item, (height, width), _digest(pixels.tobytes())))
    return images[: len(pictures)], pictures, skipped


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _same_bytes(look: Look) -> bytes:
    try:
        data = look.item.source.read()
    except OSError as error:
        raise DataError(f"'{look.item.name}' cannot be read any more ({reason(error)}): run again") from error
    if _digest(data) != look.digest:
        raise DataError(f"'{look.item.name}' changed while it was read: run again once nothing writes to it")
    return data


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
