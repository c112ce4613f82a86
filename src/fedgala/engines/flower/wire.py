"""Models on the wire: named arrays under their state-dict names, checked on arrival.

What travels is what the layouts of shared weights and statistics hold. Parameters may travel in half the bytes
(`float16`, `bfloat16`), statistics never do. Nothing here knows Flower: a mapping from name to array is all.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgala.errors import FedgalaError
from fedgala.parameters import Layout, Layouts, Segment

Arrays = dict[str, NDArray[Any]]

TRANSPORTS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_STORED = {"bfloat16": "uint16"}  # what NumPy, which has no bfloat16, calls the same bits


class WireError(FedgalaError):
    """Arrays that are not what they should be; the message says which and why."""


def pack(weights: Tensor, statistics: Tensor, layouts: Layouts, transport: str = "float32") -> Arrays:
    """A model, or an update of one, as named arrays."""
    arrays, kept = pack_vector(weights, layouts.weights, transport), pack_vector(statistics, layouts.statistics)
    assert not arrays.keys() & kept.keys(), "a parameter and a statistic of one name"
    return arrays | kept


def pack_vector(vector: Tensor, layout: Layout, transport: str = "float32") -> Arrays:
    """A flat vector as named arrays."""
    return {name: _array(tensor, transport) for name, tensor in layout.views(vector).items()}


def unpack(arrays: Mapping[str, NDArray[Any]], layouts: Layouts, transport: str = "float32") -> tuple[Tensor, Tensor]:
    """Flat weights and statistics from the arrays of a model, or of an update of one.

    Raises:
        WireError: a name is missing or unknown, a shape or type differs, or a value is not finite.
    """
    names = {segment.name for segment in layouts.statistics.segments}
    weights = {name: array for name, array in arrays.items() if name not in names}
    statistics = {name: array for name, array in arrays.items() if name in names}
    return unpack_vector(weights, layouts.weights, transport), unpack_vector(statistics, layouts.statistics)


def unpack_vector(arrays: Mapping[str, NDArray[Any]], layout: Layout, transport: str = "float32") -> Tensor:
    """The flat vector that the arrays are the parts of.

    Raises:
        WireError: as `unpack`.
    """
    if odd := sorted({segment.name for segment in layout.segments} ^ arrays.keys()):
        raise WireError(f"{len(odd)} arrays missing or unknown, {odd[0][:80]} first")
    vector = layout.zeros()
    for segment in layout.segments:
        layout.view(vector, segment).copy_(_tensor(arrays[segment.name], segment, transport))
    return vector


def num_bytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    """What the arrays' values take."""
    return sum(array.nbytes for array in arrays.values())


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """A short name for these very arrays, the same on every machine."""
    total = blake2b(digest_size=12)
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()


def _array(tensor: Tensor, transport: str) -> NDArray[Any]:
    dense = tensor.detach().to("cpu", TRANSPORTS[transport]).contiguous()
    return (dense.view(torch.uint16) if transport in _STORED else dense).numpy().copy()


def _tensor(array: NDArray[Any], segment: Segment, transport: str) -> Tensor:
    stored = _STORED.get(transport, transport)
    if str(array.dtype) != stored:
        raise WireError(f"{segment.name} is of type {array.dtype}, expected {stored}")
    if array.shape != segment.shape:
        raise WireError(f"{segment.name} has shape {array.shape}, expected {segment.shape}")
    tensor = torch.from_numpy(np.array(array))  # a copy that may be written to, aligned
    value = tensor.view(torch.bfloat16) if transport in _STORED else tensor
    if not bool(value.isfinite().all()):
        raise WireError(f"{segment.name} has values that are not finite")
    return value
