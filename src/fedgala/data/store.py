"""Pictures decoded once into a memory-mapped cache that later runs open in a moment.

A store is named after what is in it: the bytes and the name of every picture, and the size asked for. So a data set
that was moved, copied or touched finds its store again, and one that changed never does. To read and hash all bytes
costs a fraction of decoding them; a shortcut named after paths, sizes and times spares even that where nothing moved.
A store is written beside its place and renamed, so that it is there as a whole or not at all. Pixels are written in
order by plain writes, not through a memory map, on which a full disk kills the process instead of raising OSError.
"""

import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import torch

from fedgala.config import NATIVE
from fedgala.data.cache import META, STORES, default_cache, digest, naming_write_errors, staging
from fedgala.data.decode import Look, Skipped, decode_into, look_at_all, map_images
from fedgala.data.domain import Dataset, DomainData
from fedgala.data.listing import Listing, counted, reason, some
from fedgala.errors import CheckpointError, ConfigError, DataError

VERSION = 2  # of the files' layout and of what decoding does; another one never opens this one's stores
IMAGES, SIZES, LABELS = "images.npy", "sizes.npy", "labels.npy"
_CHECKED = {IMAGES: 128, SIZES: -1, LABELS: -1}  # bytes that are compared at each opening: a header, and all

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Report:
    """What opening a store did besides returning it."""

    path: Path
    cached: bool  # found, rather than decoded now
    skipped: tuple[Skipped, ...]

    def line(self) -> str:
        """``3 files skipped: a.jpg (truncated), ...``; empty where none was."""
        return f"{counted(len(self.skipped), 'file')} skipped: {some(self.skipped)}" if self.skipped else ""


def open_store(
    listing: Listing,
    size: int = 128,
    *,
    cache: Path | None = None,
    strict: bool = False,
    limit: int | None = None,
    progress: Progress | None = None,
    report: Callable[[Report], None] | None = None,
) -> Dataset:
    """The pictures of `listing` as memory-mapped uint8 tensors, decoded now or by an earlier run.

    Args:
        listing: what to decode.
        size: longest side in pixels; larger pictures are shrunk, smaller ones keep their pixels.
        cache: where stores are kept; `default_cache` where None.
        strict: DataError on a file that cannot be decoded, instead of skipping it.
        limit: at most this many pictures of each domain (`Listing.limited`).
        progress: given steps done and their total, two for each picture (read, decode), unless a shortcut is taken.
        report: given once where the store is and which files were skipped.
    """
    if not 1 <= size <= NATIVE:
        raise ConfigError(f"size is {size}: 1 to {NATIVE} pixels for the longest side are allowed")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}: at least 1 picture of each domain is needed")
    listing = listing if limit is None else listing.limited(limit)
    stores = (cache or default_cache()) / STORES
    shortcut = stores / f"{_key(listing, size, (item.source.stamp() for item in listing.items))}.key"
    place, cached = _follow(shortcut), True
    if place is None:
        place, cached = _find_or_build(listing, size, stores, strict, progress or (lambda done, total: None))
        with suppress(OSError):  # a cache that is read only still serves
            draft = shortcut.with_suffix(f".{token_hex(8)}")
            draft.write_text(place.name, encoding="ascii")
            draft.replace(shortcut)
    dataset, skipped = _load(place, listing)
    if report is not None:
        report(Report(place, cached, skipped))
    _refuse(skipped if strict else ())
    return dataset


def _key(listing: Listing, size: int, contents: Iterable[object]) -> str:
    """The name of the pictures of `listing` at `size`, if `contents` tells for each what its bytes are."""
    pairs = zip(listing.items, contents, strict=True)
    return digest((VERSION, size), *((it.domain, it.label, it.name, content) for it, content in pairs))


def _find_or_build(listing: Listing, size: int, stores: Path, strict: bool, progress: Progress) -> tuple[Path, bool]:
    """The store of these contents, and whether it was there."""
    looks = look_at_all(listing.items, lambda done: progress(done, 2 * len(listing.items)))
    _refuse([look.skipped for look in looks if look.skipped] if strict else ())
    key = _key(listing, size, (look.digest for look in looks))
    place = stores / key
    if place.is_dir():
        return place, True
    with naming_write_errors(stores), staging(stores) as stage:
        _build(stage, key, listing, looks, size, progress)
        try:
            stage.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was first, with the same pixels
                raise
    return place, False


def _build(stage: Path, key: str, listing: Listing, looks: Sequence[Look], size: int, progress: Progress) -> None:
    """Write a whole store into `stage`."""
    skipped = [look.skipped for look in looks if look.skipped]
    good = [look for look in looks if not look.skipped]
    canvas = min(size, max((look.extent for look in good), default=1))
    channels = 1 if all(look.gray for look in good) else 3
    needed, free = len(good) * channels * canvas**2, shutil.disk_usage(stage).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free")
    before, steps = len(looks) + len(skipped), 2 * len(looks)
    with open(stage / IMAGES, "wb") as file:
        pictures, undecoded = decode_into(file, good, channels, canvas, lambda done: progress(before + done, steps))
        file.flush()
        os.fsync(file.fileno())  # or a power cut after the renaming could leave zeros behind a good name
    skipped += undecoded
    held = Counter(picture.item.domain for picture in pictures)
    for domain in (name for name in listing.domains if not held[name]):
        lost = some(skip for skip in skipped if skip.domain == domain)
        raise DataError(f"no picture of the domain '{domain}' can be read: {lost}; replace them, or remove its folder")
    number = {label: index for index, label in enumerate(listing.classes)}
    labels = [-1 if it.item.label is None else number[it.item.label] for it in pictures]
    np.save(stage / SIZES, np.array([it.size for it in pictures], np.int32))
    np.save(stage / LABELS, np.array(labels, np.int64))
    content = ((it.item.domain, label, it.size, it.digest) for it, label in zip(pictures, labels, strict=True))
    meta = {
        "key": key,
        "name": listing.name,
        "canvas": canvas,
        "fingerprint": digest(listing.classes, *content),
        "classes": listing.classes,
        "domains": [(name, held[name]) for name in listing.domains],
        "skipped": [(skip.domain, skip.name, skip.reason) for skip in skipped],
        "bytes": (stage / IMAGES).stat().st_size,
        "digests": [(name, length, _digest_of(stage / name, length)) for name, length in _CHECKED.items()],
    }
    (stage / META).write_text(json.dumps({"checksum": _checksum(meta), **meta}), encoding="utf-8")


def _load(place: Path, listing: Listing) -> tuple[Dataset, tuple[Skipped, ...]]:
    """Map a store, after checks that do not read its pixels."""
    try:
        meta = _read_meta(place)
        images = map_images(place / IMAGES)
        sizes, labels = (np.load(place / name, allow_pickle=False) for name in (SIZES, LABELS))
    except OSError as error:
        raise _damaged(place, f"{Path(error.filename or place).name}: {reason(error)}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(place, f"{META} is not JSON") from error
    except ValueError as error:
        raise _damaged(place, str(error)) from error
    domains, start, pixels = [], 0, torch.from_numpy(images)
    for name, count in meta["domains"]:
        part = slice(start, start := start + count)
        known = torch.from_numpy(labels[part]) if labels[start - 1] >= 0 else None
        rows = torch.arange(part.start, part.stop)
        domains.append(DomainData(name, pixels, torch.from_numpy(sizes[part]), known, rows))
    dataset = Dataset(listing.name, tuple(domains), tuple(meta["classes"]), meta["fingerprint"])
    return dataset, tuple(Skipped(*skip) for skip in meta["skipped"])


def _damaged(place: Path, why: str) -> CheckpointError:
    remedy = f"delete it: `fedgala data cache clear` or rm -r '{place}'"
    return CheckpointError(f"the cache '{place}' is damaged ({why}); {remedy}")


def _read_meta(place: Path) -> dict[str, Any]:
    """The description of a store, once it and the files beside it are what was written."""
    meta = json.loads((place / META).read_text(encoding="utf-8"))
    if not isinstance(meta, dict) or meta.pop("checksum", None) != _checksum(meta):
        raise ValueError(f"{META} does not match its checksum")
    if meta["key"] != place.name:
        raise ValueError(f"{META} belongs to the store {meta['key']}")
    if (size := (place / IMAGES).stat().st_size) != meta["bytes"]:
        raise ValueError(f"{IMAGES} has {size:,} bytes, {meta['bytes']:,} were written")
    for name, length, check in meta["digests"]:
        if _digest_of(place / name, length) != check:
            raise ValueError(f"{name} does not match its checksum")
    return meta


def _checksum(meta: dict[str, Any]) -> str:
    return digest(json.dumps(meta, sort_keys=True))


def _digest_of(path: Path, length: int) -> str:
    with open(path, "rb") as file:
        return blake2b(file.read(length), digest_size=16).hexdigest()


def _refuse(skipped: Sequence[Skipped]) -> None:
    if skipped:
        raise DataError(
            f"{counted(len(skipped), 'file')} cannot be read as pictures: {some(skipped)}; replace or remove them, or "
            "leave out `strict` to skip them"
        )


def _follow(shortcut: Path) -> Path | None:
    """The store a shortcut leads to, if both are there."""
    try:
        place = shortcut.parent / shortcut.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return place if place != shortcut.parent and place.is_dir() else None
