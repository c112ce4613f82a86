"""A data set before any picture is opened: which file belongs to which domain and class, in one order.

The order is by domain, class and file name whatever folders or archives the files lie in, so that one data set is one
value however it is kept on disk.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

LAYOUT = "<domain>/<class>/*.jpg (or <domain>/*.jpg without labels)"
MAX_BYTES = 1 << 28  # a picture's file of more is not read into memory
_SUFFIXES = ".bmp .gif .jfif .jpe .jpeg .jpg .pbm .pgm .png .pnm .ppm .tif .tiff .webp"
SUFFIXES = frozenset(_SUFFIXES.split())  # in lower case


class PictureError(Exception):
    """Why one picture cannot be used, in a few words."""


class Source(Protocol):
    """Where the bytes of one file are; read by several threads at once."""

    def read(self) -> bytes:
        """All the bytes; OSError where that fails, PictureError where it always will."""
        ...

    def stamp(self) -> str:
        """Cheap to ask for, and another one whenever the bytes may have changed."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """One picture that is listed but not yet opened."""

    domain: str
    label: str | None
    name: str  # relative to the root, for messages
    source: Source


@dataclass(frozen=True)
class Listing:
    """The pictures of a data set; `list_items` puts them in order."""

    name: str
    root: Path
    items: tuple[Item, ...]
    others: tuple[str, ...] = ()  # files that are not pictures of the data set
    empty: tuple[str, ...] = ()  # folders in the place of a domain or class that hold no picture
    remarks: tuple[str, ...] = ()  # what else the reader should know, a line each
    layout: str = "folders"  # how the pictures were found, in words
    known: str | None = None  # its name in the catalogue

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains, sorted."""
        return tuple(sorted({item.domain for item in self.items}))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The labels found in any of the domains, sorted: one domain may lack some."""
        return tuple(sorted({item.label for item in self.items if item.label is not None}))

    def limited(self, limit: int) -> "Listing":
        """At most `limit` pictures of each domain: shared among its classes by their size, evenly spread within each.

        Every class keeps at least one picture if `limit` allows (Adams' rule of apportionment). `classes` may shrink
        where it does not.
        """
        groups: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for index, item in enumerate(self.items):
            groups[item.domain][item.label or ""].append(index)
        kept = sorted(index for labels in groups.values() for index in _spread(list(labels.values()), limit))
        return replace(self, items=tuple(self.items[index] for index in kept))

    def without(self, names: Set[str]) -> "Listing":
        """All but the pictures of these names."""
        return replace(self, items=tuple(item for item in self.items if item.name not in names))

    def notes(self) -> tuple[str, ...]:
        """What the reader should know was left out, a line each."""
        lines = list(self.remarks)
        if self.others:
            lines.append(f"{counted(len(self.others), 'file')} not read as pictures: {some(self.others)}")
        if self.empty:
            lines.append(f"{counted(len(self.empty), 'folder')} without pictures: {some(self.empty)}")
        return tuple(lines)


def list_items(items: Iterable[Item]) -> tuple[Item, ...]:
    """`items` in the one order: by domain, then class, then file name with 2 before 10."""
    return tuple(
        sorted(items, key=lambda it: (it.domain, it.label or "", natural(it.name.rpartition("/")[2]), it.name))
    )


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2,000 files``, ``3 entries``."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else several}"


def some(names: Iterable[object], most: int = 4) -> str:
    """The first names, and how many more there are."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def reason(error: OSError) -> str:
    """The system's own words for what went wrong, without number and path."""
    words = error.strerror or type(error).__name__
    return words[:1].lower() + words[1:]


def natural(name: str) -> tuple[str, str]:
    """Digits compare as numbers; the name itself settles what is then equal."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(20), name.casefold()), name


def printable(name: str) -> str:
    """`name` as one printable line, and the same from every file system (macOS writes é as two characters)."""
    if not name.isprintable():
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return unicodedata.normalize("NFC", name)


def is_picture(name: str) -> bool:
    """Whether a file of this name is taken for a picture."""
    return "." + name.rpartition(".")[2].lower() in SUFFIXES


def _spread(groups: Sequence[Sequence[int]], limit: int) -> Iterator[int]:
    seats = sorted(
        (place / len(group), -len(group), which) for which, group in enumerate(groups) for place in range(len(group))
    )
    quota = [0] * len(groups)
    for _, _, which in seats[:limit]:
        quota[which] += 1
    for group, count in zip(groups, quota, strict=True):
        yield from (group[place * len(group) // count] for place in range(count))
