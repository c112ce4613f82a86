"""A request or an answer between a site's Flower client and its worker: a few words and named arrays, over a socket.

A frame is JSON and raw numbers, never pickle: a magic word, the length of the JSON, the JSON (the words, and name, type
and shape of each array), then the arrays' bytes in that order. This module leans on NumPy only, since every message
from the server starts a client process that should be ready in a moment.
"""

import json
import math
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"fedgala1"
TYPES = ("float32", "float16", "uint16")
MOST_WORDS, MOST_BYTES = 1 << 26, 1 << 36  # a frame of more is not one of ours


class FrameError(OSError):
    """The other side closed, or sent something that is no frame."""


@dataclass(frozen=True)
class Frame:
    """Words and arrays."""

    words: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def send(connection: socket.socket, frame: Frame) -> None:
    """Write a frame."""
    arrays = {name: np.asarray(array, order="C") for name, array in frame.arrays.items()}
    table = [[name, str(array.dtype), array.shape] for name, array in arrays.items()]
    head = json.dumps({"words": dict(frame.words), "arrays": table}).encode()
    connection.sendall(MAGIC + struct.pack(">Q", len(head)) + head)
    for array in arrays.values():
        connection.sendall(array.reshape(-1).view(np.uint8).data)


def receive(connection: socket.socket) -> Frame:
    """Read a frame.

    Raises:
        FrameError: the other side closed before the end, or what came is no frame.
    """
    if (start := bytes(_exactly(connection, len(MAGIC) + 8)))[: len(MAGIC)] != MAGIC:
        raise FrameError("what came is no frame")
    (length,) = struct.unpack(">Q", start[len(MAGIC) :])
    if length > MOST_WORDS:
        raise FrameError(f"a frame with {length:,} bytes of words")
    try:
        head = json.loads(_exactly(connection, length))
        words, table = dict(head["words"]), [(str(n), str(t), tuple(map(int, s))) for n, t, s in head["arrays"]]
    except (ValueError, TypeError, KeyError) as error:
        raise FrameError("what came is no frame") from error
    if any(kind not in TYPES or min(shape, default=0) < 0 for _, kind, shape in table):
        raise FrameError("a frame with arrays that are not ours")
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for _, kind, shape in table]
    if sum(sizes) > MOST_BYTES:
        raise FrameError(f"a frame with {sum(sizes):,} bytes of arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for (name, kind, shape), size in zip(table, sizes, strict=True):
        arrays[name] = np.ndarray(shape, kind, _exactly(connection, size))
    return Frame(words, arrays)


def _exactly(connection: socket.socket, count: int) -> bytearray:
    buffer = bytearray(count)
    view, done = memoryview(buffer), 0
    while done < count:
        got = connection.recv_into(view[done:])
        if not got:
            raise FrameError("the other side closed the connection")
        done += got
    return buffer
