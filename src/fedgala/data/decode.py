"""Many pictures at once, in a few threads: looked at, tried, or decoded into one array that is mapped into memory.

Threads, not processes: Pillow decodes without the interpreter's lock, and no pixels need to be sent.
"""

import mmap
import os
import sys
import warnings
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
from PIL import Image

from fedgala.data.listing import Item, PictureError, reason
from fedgala.data.pictures import probe, read_picture
from fedgala.errors import DataError

THREADS = min(32, (os.cpu_count() or 1) + 2)
_CHUNK, _CHUNK_BYTES = 64, 8 << 20  # pictures and pixels that one thread works on at a time, at most
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000) if sys.platform == "linux" else 0  # named from Python 3.13 on

T = TypeVar("T")
R = TypeVar("R")


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


def look_at_all(items: Sequence[Item], progress: Callable[[int], None], size: int | None = None) -> list[Look]:
    """Read each file whole, for its digest, but no more than the header of its picture; `progress` hears how many.

    With `size`, each is also decoded at that size and forgotten, which finds all that cannot be.
    """
    Image.init()  # once, here, rather than by several threads at once
    looks: list[Look] = []
    with quiet(), closing(in_order(partial(_look_at, size=size), items, _CHUNK)) as results:
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
    with quiet(), closing(in_order(partial(_decode, channels=channels, canvas=canvas), looks, chunk)) as results:
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


@contextmanager
def quiet() -> Iterator[None]:
    """Without Pillow's warnings about odd metadata beside good pixels."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def in_order(work: Callable[[Sequence[T]], R], tasks: Sequence[T], chunk: int) -> Generator[R, None, None]:
    """`work` on `chunk` tasks at a time, results in order; the threads never run far ahead of who reads them."""
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


def _look_at(items: Sequence[Item], size: int | None) -> list[Look]:
    return [_look(item, size) for item in items]


def _look(item: Item, size: int | None) -> Look:
    digest = b""
    try:
        data = item.source.read()
        digest = _digest(data)
        extent, gray = probe(data)
        if size is not None:
            read_picture(data, size, 1 if gray else 3)
    except PictureError as error:
        return Look(item, digest, skipped=Skipped(item.domain, item.name, str(error)))
    except (FileNotFoundError, PermissionError) as error:
        return Look(item, digest, skipped=Skipped(item.domain, item.name, reason(error)))
    except OSError as error:  # a failing disk or network: not a property of the picture
        raise DataError(f"'{item.name}' cannot be read ({reason(error)}): try again, or copy the pictures") from error
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
    except (OSError, PictureError) as error:
        words = reason(error) if isinstance(error, OSError) else error
        raise DataError(f"'{look.item.name}' cannot be read any more ({words}): run again") from error
    if _digest(data) != look.digest:
        raise DataError(f"'{look.item.name}' changed while it was read: run again once nothing writes to it")
    return data
