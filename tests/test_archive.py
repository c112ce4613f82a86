"""Archives: read where they are, by many threads, and never trusted."""

import gzip
import io
import os
import stat
import tarfile
import threading
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedgala.data import archive as archives
from fedgala.data.archive import read_archive
from fedgala.data.cache import default_cache
from fedgala.data.folder import Tree
from fedgala.data.listing import MAX_BYTES, PictureError
from fedgala.errors import DataError
from layouts import Files, write_tar, write_zip

FILES: Files = {f"set/{d}/c/{n}.jpg": f"{d} {n}".encode() * 99 for d in "ab" for n in (1, 2, 10)} | {
    "set/a/list.txt": b"x"
}
KINDS = {"x.tar": "w", "x.tar.gz": "w:gz", "x.tar.bz2": "w:bz2", "x.tar.xz": "w:xz"}


def packed(place: Path, files: Files = FILES) -> Path:
    return write_zip(place, files) if place.suffix == ".zip" else write_tar(place, files, KINDS[place.name])


def contents(tree: Tree) -> Files:
    return {it.name(file): file.source.read() for it in tree.folders for file in (*it.pictures, *it.others)}


def refused(path: Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        read_archive(path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", [*KINDS, "x.zip"])
def test_an_archive_is_a_tree(tmp_path: Path, name: str) -> None:
    tree = read_archive(packed(tmp_path / name))
    assert (tree.name, tree.archive, tree.remarks) == ("set", True, ())
    assert contents(tree) == FILES
    assert [folder.path for folder in tree.filled] == [("set", "a", "c"), ("set", "b", "c")]


@pytest.mark.parametrize("name", [*KINDS, "x.zip"])
def test_threads_read_at_once(tmp_path: Path, name: str) -> None:
    files = {f"s/{n}.jpg": os.urandom(n * 50) for n in range(200)}
    sources = [
        (it.name(file), file.source)
        for it in read_archive(packed(tmp_path / name, files)).folders
        for file in it.pictures
    ]
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip([name for name, _ in sources], pool.map(lambda it: it[1].read(), sources), strict=True))
    assert found == files


def test_nothing_is_left_behind_and_files_are_closed(tmp_path: Path) -> None:
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contents(read_archive(packed(tmp_path / "x.tar.gz")))
    assert threading.active_count() == before
    assert [path.suffix for path in (default_cache() / "archives").iterdir() if path.suffix != ".json"] == []


def test_the_index_is_kept_and_a_damaged_one_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGALA_CACHE", str(tmp_path / "cache"))
    path = packed(tmp_path / "x.tar")
    calls = []
    index = archives._index

    def counting(archive: archives.Archive) -> dict[str, Any]:
        calls.append(archive.path)
        return index(archive)

    monkeypatch.setattr(archives, "_index", counting)
    for _ in range(2):
        assert contents(read_archive(path)) == FILES
    (kept,) = (tmp_path / "cache" / "archives").iterdir()
    kept.write_text(kept.read_text().replace("set", "sot"))
    assert contents(read_archive(path)) == FILES
    os.utime(path, ns=(0, 0))
    assert contents(read_archive(path)) == FILES
    assert len(calls) == 3


def test_an_archive_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.tar")
    tree = read_archive(path)
    contents(tree)
    fresh = read_archive(path)  # from its index, so that the file is not open yet
    path.write_bytes(b"other")
    with pytest.raises(DataError, match="changed while it was read"):
        contents(fresh)


def test_without_a_top_folder_the_name_of_the_archive_is_one(tmp_path: Path) -> None:
    tree = read_archive(packed(tmp_path / "x.tar.gz", {"a/1.jpg": b"", "b/1.jpg": b""}))
    assert (tree.name, [folder.place for folder in tree.filled]) == ("x", ["x/a", "x/b"])
    tree = read_archive(packed(tmp_path / "x.zip", {"1.jpg": b""}))
    assert (tree.name, [folder.place for folder in tree.filled]) == ("x", ["x"])


BAD = [
    "../",
    "/etc/passwd.jpg",
    "../up.jpg",
    "s/../../up.jpg",
    "C:\\x.jpg",
    "s\\..\\..\\x.jpg",
    "\\\\host\\x.jpg",
    ".",
    "s/..",
]


@pytest.mark.parametrize("name", ["x.tar", "x.zip"])
def test_entries_that_lead_outside_are_refused_by_name(tmp_path: Path, name: str) -> None:
    tree = read_archive(packed(tmp_path / name, {"s/good.jpg": b"x", **dict.fromkeys(BAD, b"evil")}))
    assert contents(tree) == {"s/good.jpg": b"x"}
    (remark,) = tree.remarks
    assert remark.startswith(
        f"{len(BAD)} entries of '{name}' not read: ../ (it leads out of the archive), /etc/passwd.jpg ("
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_links_and_devices_are_refused_by_name(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"s/good.jpg": b"x"})
    with tarfile.open(path, "a") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            entry = tarfile.TarInfo(f"s/{kind.decode()}.jpg")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    (remark,) = read_archive(path).remarks
    assert remark.startswith("4 entries of 'x.tar' not read: s/2.jpg (a link or device), s/1.jpg (a link or device)")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        link = zipfile.ZipInfo("s/link.jpg")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("s/good.jpg", "x")
    tree = read_archive(tmp_path / "x.zip")
    assert tree.remarks == ("1 entry of 'x.zip' not read: s/link.jpg (a link or device)",)
    assert contents(tree) == {"s/good.jpg": b"x"}


def test_of_two_entries_of_one_name_the_last_counts(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"s/1.jpg": b"old"})
    with tarfile.open(path, "a") as tar:
        entry = tarfile.TarInfo("./s//1.jpg")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"new"))
    tree = read_archive(path)
    assert contents(tree) == {"s/1.jpg": b"new"}
    assert tree.remarks == ("1 entry of 'x.tar' given again, the last counts: ./s//1.jpg",)


def test_one_folder_written_in_two_ways_is_one(tmp_path: Path) -> None:
    tree = read_archive(packed(tmp_path / "x.zip", {"s/a/1.jpg": b"", "./s//a/2.jpg": b"", "s\\a\\3.jpg": b""}))
    assert [(folder.place, len(folder.pictures)) for folder in tree.folders] == [("s/a", 3)]


def test_clutter_and_empty_folders(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("s/a/c/1.jpg", "s/a/empty/", "__MACOSX/s/a/._1.jpg", "s/.DS_Store"):
            archive.writestr(name, "x" if not name.endswith("/") else "")
    tree = read_archive(tmp_path / "x.zip")
    assert [folder.place for folder in tree.folders if folder.path] == ["s/a/c", "s/a/empty"]
    assert tree.name == "s"


@pytest.mark.parametrize("name", [*KINDS, "x.zip"])
@pytest.mark.parametrize("keep", [0.0, 0.05, 0.5, 0.75])
def test_a_truncated_archive_is_refused(tmp_path: Path, name: str, keep: float) -> None:
    path = packed(tmp_path / name, {f"s/{n}.jpg": os.urandom(3000) for n in range(9)})
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    refused(path, f"/{name}' is damaged, or no tar or zip archive (", "get it again, or name a folder")


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.tar")
    data = bytearray(path.read_bytes())
    data[3 * 1024 + 100] ^= 1
    path.write_bytes(data)
    refused(path, "no entry where one should be, 3,072 bytes from its beginning")


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8" * 600)
    refused(tmp_path / "a.gz", "is damaged, or no tar")
    refused(tmp_path / "b.jpg", "is damaged, or no tar")
    refused(tmp_path / "c.tar", "/c.tar' cannot be read (no such file")


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damage_to_one_file_of_a_zip_is_that_file_s(tmp_path: Path, kind: int) -> None:
    path = write_zip(tmp_path / "x.zip", {"s/1.jpg": b"first" * 99, "s/2.jpg": b"second" * 99}, kind)
    data = bytearray(path.read_bytes())
    data[45] ^= 0xFF
    path.write_bytes(data)
    first, second = read_archive(path).filled[0].pictures
    with pytest.raises(PictureError, match="damaged in the archive"):
        first.source.read()
    assert second.source.read() == b"second" * 99
    data[data.index(b"PK\3\4", 9)] = 0
    path.write_bytes(data)
    with pytest.raises(PictureError, match="damaged in the archive"):
        read_archive(path).filled[0].pictures[1].source.read()


def test_what_a_zip_may_ask_for(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"s/1.jpg": b"0" * 99}, zipfile.ZIP_LZMA)
    with pytest.raises(PictureError, match="compressed in a way that is not read"):
        read_archive(path).filled[0].pictures[0].source.read()
    data = bytearray(write_zip(path, {"s/1.jpg": b"0" * 99, "s/2.jpg": b""}).read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1  # the flag of encryption
    path.write_bytes(data)
    tree = read_archive(path)
    assert tree.remarks == ("1 entry of 'x.zip' not read: s/1.jpg (it needs a password)",)


def test_a_file_too_large_for_a_picture(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        entry = tarfile.TarInfo("s/1.jpg")
        entry.size = MAX_BYTES + 1
        with open(tmp_path / "hole", "wb+") as hole:
            hole.truncate(entry.size)
            tar.addfile(tarfile.TarInfo("s/2.jpg"))
    (picture,) = read_archive(tmp_path / "x.tar").filled[0].pictures
    huge = archives.ArchiveSource(picture.source.archive, archives.Member("s/1.jpg", 0, 0, MAX_BYTES + 1))  # type: ignore[attr-defined]
    with pytest.raises(PictureError, match="256 MiB, at most 256 are read"):
        huge.read()


def test_a_bomb_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_SHARE", 0.0)
    refused(packed(tmp_path / "x.tar.gz"), "is over 0 GiB decompressed, too much for", "unpack it")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDGALA_CACHE", str(tmp_path / "file"))
    assert contents(read_archive(packed(tmp_path / "x.tar"))) == FILES
    refused(packed(tmp_path / "x.tar.gz"), "the image cache '", "cannot be written (not a directory)")
