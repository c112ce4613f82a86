"""Tar and zip archives read in place: an index of what lies where, then bytes by position, for any number of threads.

Nothing is unpacked. Only a compressed tar, which cannot be read from the middle, is decompressed once for each process
that reads it, into a file without a name in the cache. Entries are never written anywhere, and those that could lead
outside -- absolute paths, ``..``, links, devices -- are refused by name.
"""

import bz2
import gzip
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedgala.data.cache import default_cache, digest, naming_write_errors, recall
from fedgala.data.folder import File, Folder, Tree, is_clutter, joined
from fedgala.data.listing import MAX_BYTES, PictureError, counted, is_picture, printable, reason, some
from fedgala.errors import DataError

VERSION = 1  # of an index
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
_PACKED: dict[bytes, Callable[[Path], IO[bytes]]] = {  # by how such files begin
    b"\x1f\x8b": gzip.open,  # type: ignore[dict-item]
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_DAMAGE: tuple[type[Exception], ...]  # what the readers raise on bytes that are not what they seem
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, LookupError, NotImplementedError, OSError, OverflowError)
_DAMAGE += (RuntimeError, ValueError, struct.error, zlib.error, lzma.LZMAError)
_BLOCK, _SHARE = 512, 0.9  # of a tar; of the free space that a compressed one may fill


@dataclass(frozen=True, slots=True)
class Member:
    """Where one file of an archive lies."""

    name: str
    offset: int  # of its bytes in a tar, of its header in a zip
    stored: int  # bytes there
    size: int  # bytes of the file
    method: int = -1  # a zip's compression; -1 in a tar
    check: int = 0  # CRC-32, in a zip


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """A file inside an archive."""

    archive: "Archive"
    member: Member

    def read(self) -> bytes:
        """The file's bytes, decompressed and checked as far as the archive allows."""
        it = self.member
        if it.size > MAX_BYTES:
            raise PictureError(f"{it.size >> 20:,} MiB, at most {MAX_BYTES >> 20} are read")
        if it.method < 0:
            return self.archive.read_at(it.offset, it.stored)
        header = self.archive.read_at(it.offset, 30)
        if header[:4] != b"PK\3\4":
            raise PictureError("damaged in the archive")
        name, extra = struct.unpack("<HH", header[26:])
        data = _inflate(self.archive.read_at(it.offset + 30 + name + extra, it.stored), it)
        if len(data) != it.size or zlib.crc32(data) != it.check:
            raise PictureError("damaged in the archive")
        return data

    def stamp(self) -> str:
        """The archive's own, and the place in it."""
        return f"{self.archive.stamp} {self.member.offset} {self.member.stored}"


class Archive:
    """The bytes of an archive by their position, decompressed where it is compressed as a whole."""

    def __init__(self, path: Path):
        self.path, self.stamp = path, _stamp(path)
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def read_at(self, offset: int, size: int) -> bytes:
        """`size` bytes; PictureError where the archive ends before."""
        with self._lock:
            file = self.file()
            file.seek(offset)
            data = file.read(size)
        if len(data) < size:
            raise PictureError("truncated")
        return data

    def file(self) -> IO[bytes]:
        """The open file, which is closed with this object."""
        if self._file is None:
            if _stamp(self.path) != self.stamp:
                raise DataError(f"'{self.path}' changed while it was read: run again once nothing writes to it")
            with _damage_named(self.path):
                self._file = _open(self.path)
            weakref.finalize(self, self._file.close)
        return self._file


def read_archive(path: Path) -> Tree:
    """The tree of an archive; DataError where it is none, or damaged.

    Files that do not share one top folder are given that of the archive's own name, as careful unpackers do.
    """
    path = Path(os.path.abspath(os.path.expanduser(path)))
    archive = Archive(path)
    index = recall("archives", digest(VERSION, archive.stamp), lambda: _index(archive))
    stem = printable(re.sub(r"(\.tar)?\.\w+$", "", path.name))
    held: dict[str, tuple[list[File], list[File]]] = {name: ([], []) for name in index["folders"]}
    for row in index["members"]:
        folder, _, name = row[0].replace("\\", "/").rpartition("/")
        if not is_clutter(name):
            files = held.setdefault(folder, ([], []))
            files[not is_picture(name)].append(File(printable(name), ArchiveSource(archive, Member(*row))))
    found = {name: tuple(map(printable, _steps(name))) for name in held}
    found = {name: steps for name, steps in found.items() if not any(map(is_clutter, steps))}
    tops = {found[name][:1] for name, files in held.items() if name in found and any(files)}
    above = () if len(tops) == 1 and () not in tops else (stem,)
    folders = joined(Folder((*above, *steps), *map(tuple, held[name])) for name, steps in sorted(found.items()))
    remarks = [
        f"{counted(len(names), 'entry')} of '{printable(path.name)}' {words}: {some(map(printable, names))}"
        for words, names in (("not read", index["refused"]), ("given again, the last counts", index["repeated"]))
        if names
    ]
    return Tree(path, stem if above else tops.pop()[0], folders, tuple(remarks), archive=True)


def _stamp(path: Path) -> str:
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"the archive '{printable(str(path))}' cannot be read ({reason(error)})") from error
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _index(archive: Archive) -> dict[str, Any]:
    """What the archive holds, as plain data; of files of one name the last counts, as in unpacking."""
    refused: list[str] = []
    repeated: list[str] = []
    folders: list[str] = []
    members: dict[tuple[str, ...], Member] = {}
    with _damage_named(archive.path):
        for kind, member in _members(archive.file()):
            steps = _steps(member.name)
            outside = ".." in steps or _rooted(member.name) or (not steps and kind != "folder")
            why = "it leads out of the archive" if outside else kind
            if why == "folder":
                folders.append(member.name)
            elif why:
                refused.append(f"{member.name} ({why})")
            else:
                repeated += [member.name] if steps in members else []
                members[steps] = member
    rows = [(it.name, it.offset, it.stored, it.size, it.method, it.check) for it in members.values()]
    return {"members": rows, "folders": folders, "refused": refused, "repeated": repeated}


def _members(file: IO[bytes]) -> Iterator[tuple[str, Member]]:
    file.seek(0)
    return _zip_members(file) if file.read(2) == b"PK" else _tar_members(file)


def _tar_members(file: IO[bytes]) -> Iterator[tuple[str, Member]]:
    """Each entry, after the reason for which it is not read; ValueError where the archive ends too early.

    The tarfile module takes a damaged header for the end, hence the look at what is there.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        while (it := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # else a kilobyte for each
            if it.offset_data + it.size > end:
                raise ValueError(f"it ends within {it.name}")
            kind = "folder" if it.isdir() else "" if it.isreg() and not it.issparse() else "a link or device"
            yield kind, Member(it.name, it.offset_data, it.size, it.size)
        file.seek(tar.offset)
        if any(file.read(_BLOCK)):
            raise ValueError(f"no entry where one should be, {tar.offset:,} bytes from its beginning")


def _zip_members(file: IO[bytes]) -> Iterator[tuple[str, Member]]:
    with zipfile.ZipFile(file) as archive:
        for it in archive.infolist():
            link = stat.S_ISLNK(it.external_attr >> 16)
            locked = "it needs a password" if it.flag_bits & 1 else ""
            kind = "folder" if it.is_dir() else "a link or device" if link else locked
            yield kind, Member(it.filename, it.header_offset, it.compress_size, it.file_size, it.compress_type, it.CRC)


def _inflate(data: bytes, member: Member) -> bytes:
    if member.method == zipfile.ZIP_STORED:
        return data
    if member.method != zipfile.ZIP_DEFLATED:
        raise PictureError("compressed in a way that is not read")
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
    except zlib.error as error:
        raise PictureError("damaged in the archive") from error


def _open(path: Path) -> IO[bytes]:
    """The file, or where it is compressed all of it in one without a name, gone when it is closed or the process dies.

    What it is shows in how it begins, not in its name.
    """
    with open(path, "rb") as file:
        head = file.read(8)
    opener = next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), None)
    if opener is None:
        return open(path, "rb")
    place = default_cache() / "archives"
    with ExitStack() as held:
        with naming_write_errors(place):
            place.mkdir(parents=True, exist_ok=True)
            room = int(_SHARE * shutil.disk_usage(place).free)
            target = held.enter_context(tempfile.TemporaryFile(dir=place))
        source = held.enter_context(opener(path))
        while chunk := source.read(1 << 20):
            with naming_write_errors(place):
                target.write(chunk)
            if target.tell() > room:
                raise DataError(f"'{path}' is over {room >> 30} GiB decompressed, too much for '{place}': unpack it")
        source.close()
        held.pop_all()
    return target


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        words = reason(error) if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        place = printable(str(path))
        raise DataError(
            f"'{place}' is damaged, or no tar or zip archive ({printable(words)}): get it again, or name a folder"
        ) from error


def _steps(name: str) -> tuple[str, ...]:
    return tuple(step for step in name.replace("\\", "/").split("/") if step not in ("", "."))


def _rooted(name: str) -> bool:
    return re.match(r"[/\\]|[A-Za-z]:", name) is not None
