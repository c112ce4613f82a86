"""A directory tree, or an archive, as a tree of files: the one thing that every layout is read from.

Walking opens no file. Clutter of operating systems is left out, and so are links back to a folder that is being walked.
"""

import difflib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedgala.data.listing import (
    LAYOUT,
    MAX_BYTES,
    PictureError,
    Source,
    counted,
    is_picture,
    natural,
    printable,
    reason,
    some,
)
from fedgala.errors import DataError

DEEPEST = 12  # levels of folders that are walked
_CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir", "lost+found", "$recycle.bin"})


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file on disk."""

    path: str

    def read(self) -> bytes:
        """The file's bytes; what is no file is not opened, for a pipe would wait for ever."""
        status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise PictureError("not a regular file")
        if status.st_size > MAX_BYTES:
            raise PictureError(f"{status.st_size >> 20:,} MiB, at most {MAX_BYTES >> 20} are read")
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
class File:
    """A file in a tree; its name is printable."""

    name: str
    source: Source


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder of a tree, its files in natural order."""

    path: tuple[str, ...]  # the folders that lead to it, from the root
    pictures: tuple[File, ...] = ()
    others: tuple[File, ...] = ()

    @property
    def place(self) -> str:
        """Its path as text; the root's is empty."""
        return "/".join(self.path)

    def name(self, file: File) -> str:
        """The path of one of its files from the root of the tree."""
        return "/".join((*self.path, file.name))


@dataclass(frozen=True)
class Tree:
    """All files below a root, by folder."""

    root: Path
    name: str
    folders: tuple[Folder, ...]
    remarks: tuple[str, ...] = ()  # about what was not read, a line each
    archive: bool = False

    @property
    def filled(self) -> tuple[Folder, ...]:
        """The folders that hold pictures."""
        return tuple(folder for folder in self.folders if folder.pictures)

    def hollow(self) -> tuple[str, ...]:
        """Folders with nothing in them at any depth, but not those inside of others that are hollow."""
        full = {it.path[:depth] for it in self.folders if it.pictures or it.others for depth in range(len(it.path) + 1)}
        return tuple(it.place for it in self.folders if it.path not in full and it.path[:-1] in full)

    def others(self, *used: str) -> tuple[str, ...]:
        """The paths of the files that are no pictures, but for those whose path or name is in `used`."""
        return tuple(path for path, file in self.named("") if path not in used and file.name not in used)

    def named(self, *suffixes: str) -> Iterator[tuple[str, File]]:
        """The files that are no pictures and end so, each with its path."""
        for folder in self.folders:
            for file in folder.others:
                if file.name.lower().endswith(suffixes):
                    yield folder.name(file), file


def walk(root: Path) -> Tree:
    """The tree of a directory; DataError where there is none, or a part of it cannot be read."""
    root = Path(os.path.abspath(os.path.expanduser(root)))
    loops: list[str] = []
    folders = tuple(_walk(str(root), (), (os.path.realpath(root),), loops))
    remarks = (f"{counted(len(loops), 'folder')} not followed, a circle or too deep: {some(loops)}",) if loops else ()
    return Tree(root, printable(root.name), folders, remarks)


def joined(folders: Iterable[Folder]) -> tuple[Folder, ...]:
    """One folder for each path, with the files of all that share it."""
    whole: dict[tuple[str, ...], Folder] = {}
    for it in folders:
        had = whole.get(it.path)
        whole[it.path] = it if had is None else Folder(it.path, had.pictures + it.pictures, had.others + it.others)
    return tuple(whole.values())


def is_clutter(name: str) -> bool:
    """Whether a file or folder of this name is an operating system's own."""
    return name.startswith(".") or name.casefold() in _CLUTTER


def absent(path: Path) -> DataError:
    """There is no such path; names the sibling that was perhaps meant, at the first step that is not there."""
    parent, wanted = path.parent, path.name
    while not parent.exists() and parent != parent.parent:
        parent, wanted = parent.parent, parent.name
    try:
        with os.scandir(parent) as entries:
            names = {it.name.casefold(): it.name for it in entries if it.name != wanted}  # a link to nothing is there
    except OSError:
        names = {}
    near = difflib.get_close_matches(wanted.casefold(), names, n=1)
    remedy = f"did you mean '{printable(str(parent / names[near[0]]))}'?" if near else f"name one that holds {LAYOUT}"
    return DataError(f"there is no folder or archive '{printable(str(path))}': {remedy}")


def _walk(folder: str, path: tuple[str, ...], chain: tuple[str, ...], loops: list[str]) -> Iterator[Folder]:
    """`folder` and what is below it; `chain` is the real paths of the folders that lead here."""
    pictures, others, below = [], [], []
    for entry in _entries(folder):
        file = File(printable(entry.name), FileSource(entry.path))
        kind = _kind(entry)
        if kind == "folder":
            below.append((entry, file.name))
        elif kind == "picture":
            pictures.append(file)
        else:
            others.append(file)
    yield Folder(path, tuple(pictures), tuple(others))
    for entry, name in below:
        target = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(chain[-1], entry.name)
        if len(path) == DEEPEST or any((step + os.sep).startswith(target + os.sep) for step in chain):
            loops.append("/".join((*path, name)))
        else:
            yield from _walk(entry.path, (*path, name), (*chain, target), loops)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not is_clutter(entry.name)]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise absent(Path(folder)) from error
    except OSError as error:
        place = printable(folder)
        raise DataError(
            f"the folder '{place}' cannot be read ({reason(error)}): allow reading it, or move it away"
        ) from error
    return sorted(found, key=lambda entry: natural(entry.name))


def _kind(entry: "os.DirEntry[str]") -> str:
    """Pipes and the like are never opened; a link to nothing counts as what its name says, to be skipped by name."""
    try:
        if entry.is_dir():
            return "folder"
        readable = entry.is_file() or not os.path.exists(entry.path)
    except OSError:  # links in a circle
        readable = False
    return "picture" if readable and is_picture(entry.name) else "other"
