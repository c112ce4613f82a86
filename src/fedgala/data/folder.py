"""A directory tree read as a list of pictures: ``DIR/<domain>/<class>/*.jpg``, without labels ``DIR/<domain>/*.jpg``.

Listing opens no picture. What it yields is a value -- where each picture's bytes come from, its domain and its label --
so that an archive or another layout only has to yield the same value for everything after it to work.
"""

import difflib
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from fedgala.errors import DataError

LAYOUT = "<domain>/<class>/*.jpg (or <domain>/*.jpg without labels)"
SUFFIXES = frozenset(  # in lower case
    {".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
_CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir", "lost+found", "$recycle.bin"})


class Source(Protocol):
    """Where the bytes of one picture are; read by several threads at once."""

    def read(self) -> bytes:
        """All the bytes; OSError where that fails."""
        ...

    def stamp(self) -> str:
        """Cheap to ask for, and another one whenever the bytes may have changed."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """A picture that is a file of its own."""

    path: str

    def read(self) -> bytes:
        """The file's bytes."""
        with open(self.path, "rb") as file:
            return file.read()

    def stamp(self) -> str:
        """Path, size and both times: the change time moves even where a copy has set the modification time back."""
        try:
            status = os.stat(self.path)
        except OSError:
            return f"{self.path} is not there"
        return f"{self.path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


@dataclass(frozen=True, slots=True)
class Item:
    """One picture that is listed but not yet opened."""

    domain: str
    label: str | None
    name: str  # relative to the root, for messages
    source: Source


@dataclass(frozen=True)
class Listing:
    """The pictures of a data set, by domain, then label, then name in natural order (2 before 10)."""

    name: str
    root: Path
    items: tuple[Item, ...]
    others: tuple[str, ...] = ()  # files that are not pictures
    empty: tuple[str, ...] = ()  # folders in the place of a domain or class that hold no picture

    def __post_init__(self) -> None:
        assert all(a.domain <= b.domain for a, b in pairwise(self.items)), "items go by domain"

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

    def notes(self) -> tuple[str, ...]:
        """What the reader should know was left out, a line each."""
        lines = []
        if self.others:
            lines.append(f"{counted(len(self.others), 'file')} not read as pictures: {some(self.others)}")
        if self.empty:
            lines.append(f"{counted(len(self.empty), 'folder')} without pictures: {some(self.empty)}")
        return tuple(lines)


def list_folder(root: Path) -> Listing:
    """The pictures under `root`, laid out as `LAYOUT` says; DataError where they are not."""
    root = Path(os.path.abspath(root.expanduser()))
    top = _read(str(root))
    found = [_read_domain(folder, _text(folder.name)) for folder in sorted(top.folders, key=lambda it: _text(it.name))]
    items = tuple(item for one in found for item in one.items)
    if not items:
        stray = f"{counted(len(top.pictures), 'picture')} in no domain folder" if top.pictures else "no pictures"
        raise DataError(
            f"'{_text(str(root))}' holds {stray}: name the folder that holds {LAYOUT}; "
            f"{' '.join(sorted(suffix[1:] for suffix in SUFFIXES))} are read"
        )
    others = [_text(entry.name) for entry in (*top.pictures, *top.others)]
    others += [name for one in found for name in one.others]
    return Listing(_text(root.name), root, items, tuple(others), tuple(name for one in found for name in one.empty))


def require_domains(listing: Listing, at_least: int = 2) -> None:
    """DataError where there are fewer domains than a study over domains needs."""
    if len(listing.domains) < at_least:
        raise DataError(
            f"'{_text(str(listing.root))}' has {counted(len(listing.domains), 'domain')} ({some(listing.domains)}), at "
            f"least {at_least} are needed: put each in a folder of its own, {LAYOUT}"
        )


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some(names: Iterable[object], most: int = 4) -> str:
    """The first names, and how many more there are."""
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


@dataclass(frozen=True)
class _Level:
    """One directory, clutter left out and the rest in natural order."""

    pictures: list["os.DirEntry[str]"]
    folders: list["os.DirEntry[str]"]
    others: list["os.DirEntry[str]"]


@dataclass(frozen=True)
class _Found:
    """What one domain's folder holds."""

    items: list[Item]
    others: list[str]
    empty: list[str]


def _read(folder: str) -> _Level:
    """One directory; links back to a folder that contains it are left out, which would otherwise list all twice."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not _is_clutter(entry.name)]
    except OSError as error:
        raise DataError(_no_folder(Path(folder), error)) from error
    level = _Level([], [], [])
    for entry in sorted(found, key=lambda entry: _natural(entry.name)):
        kind = _kind(entry)
        if kind == "folder" and not (entry.is_symlink() and _contains(entry.path, folder)):
            level.folders.append(entry)
        elif kind == "picture":
            level.pictures.append(entry)
        elif kind == "other":
            level.others.append(entry)
    return level


def _kind(entry: "os.DirEntry[str]") -> str:
    """Pipes and the like are never opened; a link to nothing counts as what its name says, to be skipped by name."""
    try:
        if entry.is_dir():
            return "folder"
        readable = entry.is_file() or not os.path.exists(entry.path)
    except OSError:  # links in a circle
        readable = False
    return "picture" if readable and os.path.splitext(entry.name)[1].lower() in SUFFIXES else "other"


def _read_domain(folder: "os.DirEntry[str]", domain: str) -> _Found:
    level = _read(folder.path)
    found = _Found([], [f"{domain}/{_text(entry.name)}" for entry in level.others], [])
    for entry in level.folders:
        _read_class(entry, domain, found)
    if found.items and level.pictures:
        raise DataError(
            f"'{_text(folder.path)}' mixes {counted(len(level.pictures), 'picture')} of its own "
            f"({some((_text(entry.name) for entry in level.pictures), 2)}) with class folders "
            f"({some(dict.fromkeys(item.label for item in found.items), 2)}): a domain has either, so move one of them"
        )
    found.items.sort(key=lambda item: item.label or "")  # stable: the natural order within each class stays
    found.items.extend(_items(level.pictures, domain, None, domain))
    if not found.items:
        found.empty[:] = [domain]
    return found


def _read_class(folder: "os.DirEntry[str]", domain: str, found: _Found) -> None:
    label = _text(folder.name)
    level = _read(folder.path)
    for entry in level.folders:
        if _read(entry.path).pictures:
            raise DataError(
                f"the pictures in '{_text(entry.path)}' lie a folder too deep: the layout is DIR/{LAYOUT}, so name the "
                f"folder of the domains as DIR (perhaps '{_text(os.path.dirname(folder.path))}') or move them up"
            )
    found.others.extend(f"{domain}/{label}/{_text(entry.name)}" for entry in level.others)
    found.items.extend(_items(level.pictures, domain, label, f"{domain}/{label}"))
    if not level.pictures:
        found.empty.append(f"{domain}/{label}")


def _items(pictures: Sequence["os.DirEntry[str]"], domain: str, label: str | None, place: str) -> Iterator[Item]:
    for entry in pictures:
        yield Item(domain, label, f"{place}/{_text(entry.name)}", FileSource(entry.path))


def _spread(groups: Sequence[Sequence[int]], limit: int) -> Iterator[int]:
    seats = sorted(
        (place / len(group), -len(group), which) for which, group in enumerate(groups) for place in range(len(group))
    )
    quota = [0] * len(groups)
    for _, _, which in seats[:limit]:
        quota[which] += 1
    for group, count in zip(groups, quota, strict=True):
        yield from (group[place * len(group) // count] for place in range(count))


def _no_folder(path: Path, error: OSError) -> str:
    place = f"'{_text(str(path))}'"
    match error:
        case FileNotFoundError():
            return f"there is no folder {place}: {_near_miss(path)}"
        case NotADirectoryError():
            return f"{place} is not a folder: unpack it and name the folder that holds {LAYOUT}"
        case _:
            return f"the folder {place} cannot be read ({reason(error)}): allow reading it, or move it away"


def _near_miss(path: Path) -> str:
    """The sibling that was perhaps meant, at the first step of `path` that is not there."""
    parent, wanted = path.parent, path.name
    while not parent.exists() and parent != parent.parent:
        parent, wanted = parent.parent, parent.name
    try:
        with os.scandir(parent) as entries:
            folders = {entry.name.casefold(): entry.name for entry in entries if entry.is_dir()}
    except OSError:
        folders = {}
    near = difflib.get_close_matches(wanted.casefold(), folders, n=1)
    return f"did you mean '{_text(str(parent / folders[near[0]]))}'?" if near else f"name one that holds {LAYOUT}"


def reason(error: OSError) -> str:
    """The system's own words for what went wrong, without number and path."""
    words = error.strerror or type(error).__name__
    return words[:1].lower() + words[1:]


def _is_clutter(name: str) -> bool:
    return name.startswith(".") or name.casefold() in _CLUTTER


def _contains(folder: str, inner: str) -> bool:
    return (os.path.realpath(inner) + os.sep).startswith(os.path.realpath(folder) + os.sep)


def _natural(name: str) -> tuple[str, str]:
    """Digits compare as numbers; the name itself settles what is then equal."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(20), name.casefold()), name


def _text(name: str) -> str:
    """`name` as one printable line, and the same from every file system (macOS writes é as two characters)."""
    if not name.isprintable():
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return unicodedata.normalize("NFC", name)
