"""A cache of pictures: what it holds, when it is found again, and that it is whole or not there."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedgala.config import DataConfig
from fedgala.data import decode, store
from fedgala.data.cache import clear_cache, default_cache
from fedgala.data.domain import Dataset
from fedgala.data.folder import FileSource
from fedgala.data.resolve import resolve
from fedgala.data.source import open_dataset
from fedgala.data.store import Report, open_store
from fedgala.errors import CheckpointError, ConfigError, DataError, FedgalaError
from fedgala.observe import Observer
from test_pictures import BAD, encoded, gray16, row


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def flat(value: int, size: tuple[int, int] = (4, 4)) -> bytes:
    return encoded(Image.new("RGB", size, (value, 0, 0)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains, the first without labels, and pictures of three sizes."""
    files = {"art/1.png": flat(1), "art/2.png": flat(2, (6, 2))}
    return write(tmp_path / "set", files | {f"photo/{label}/1.png": flat(3, (3, 5)) for label in ("cat", "dog")})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(root: Path, cache: Path, **options: Any) -> tuple[Dataset, Report]:
    reports: list[Report] = []
    dataset = open_store(resolve(root), cache=cache, report=reports.append, **options)
    (report,) = reports
    return dataset, report


def refused(kind: type[FedgalaError], root: Path, cache: Path, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        opened(root, cache, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def stores(cache: Path) -> list[Path]:
    return [path for path in (cache / "stores").iterdir() if path.is_dir()]


def test_a_store_holds_what_the_folder_does(root: Path, cache: Path) -> None:
    dataset, report = opened(root, cache)
    assert (dataset.name, dataset.names, dataset.classes) == ("set", ("art", "photo"), ("cat", "dog"))
    art, photo = dataset.domains
    assert art.pictures().shape == (2, 3, 6, 6)  # the largest extent that occurs
    assert art.images.dtype == torch.uint8
    assert art.images is photo.images  # one map, of which each domain has rows
    assert art.sizes.tolist() == [[4, 4], [2, 6]]
    assert art.sizes.dtype == torch.int32
    assert art.pictures()[1, 0].tolist() == [[2] * 6] * 2 + [[0] * 6] * 4
    assert art.labels is None
    assert photo.labels is not None
    assert photo.labels.tolist() == [0, 1]
    assert photo.labels.dtype == torch.int64
    assert (report.cached, report.skipped, report.line()) == (False, (), "")


def test_gray_pictures_alone_keep_one_channel(tmp_path: Path, root: Path, cache: Path) -> None:
    gray = write(tmp_path / "gray", {"a/1.png": encoded(row("L", 5)), "a/2.png": encoded(gray16(512, 0))})
    dataset, _ = opened(gray, cache)
    assert dataset["a"].images.tolist() == [[[[5, 0], [0, 0]]], [[[2, 0], [0, 0]]]]
    (root / "art" / "1.png").write_bytes(encoded(row("L", 5)))
    assert opened(root, cache)[0]["art"].pictures()[0, :, 0, 0].tolist() == [5, 5, 5]


def test_bad_files_are_skipped_by_name_or_refused(root: Path, cache: Path) -> None:
    write(root, {f"photo/dog/{name}": data for name, (data, _) in BAD.items()})
    (root / "photo" / "dog" / "gone.jpg").symlink_to("nothing")
    reasons = {f"photo/dog/{name}": reason for name, (_, reason) in BAD.items()}
    reasons["photo/dog/gone.jpg"] = "no such file or directory"
    for _ in range(2):  # decoded, then cached
        dataset, report = opened(root, cache)
        assert {skip.name: skip.reason for skip in report.skipped} == reasons
        assert len(dataset["photo"]) == 2
        assert report.line().startswith("12 files skipped: photo/dog/")
        assert report.line().endswith(" and 8 more")
        message = refused(DataError, root, cache, strict=True)
        assert "12 files cannot be read as pictures: photo/dog/" in message
        assert "replace or remove them, or leave out `strict`" in message


def test_strict_does_not_decode_first_where_a_header_tells(root: Path, cache: Path) -> None:
    write(root, {"art/text.jpg": b"text"})
    message = refused(DataError, root, cache, strict=True)
    assert "1 file cannot be read as pictures: art/text.jpg (not an image); replace" in message
    assert not cache.exists()


@pytest.mark.parametrize("name", ["cut.png", "text.jpg"])
def test_a_domain_of_which_nothing_is_left_is_refused(root: Path, cache: Path, name: str) -> None:
    write(root, {f"sketch/{name}": BAD[name][0]})
    message = refused(DataError, root, cache)
    assert message.startswith(f"no picture of the domain 'sketch' can be read: sketch/{name} ({BAD[name][1]})")
    assert stores(cache) == []


def test_settings_out_of_range(root: Path, cache: Path) -> None:
    assert "size is 0: 1 to 4096 pixels" in refused(ConfigError, root, cache, size=0)
    assert "limit is 0: at least 1 picture" in refused(ConfigError, root, cache, limit=0)


@pytest.mark.parametrize(("size", "stored"), [(0, 150), (128, 128), (200, 150)])
def test_pictures_keep_their_pixels_where_size_allows(tmp_path: Path, size: int, stored: int) -> None:
    root = write(tmp_path / "large", {f"{domain}/1.png": flat(1, (150, 9)) for domain in "ab"})
    dataset = open_dataset(DataConfig(path=str(root), size=size), Observer())
    assert dataset["a"].images.shape[-1] == stored


def never(*_: object, **__: object) -> Any:
    raise AssertionError("not needed")


def test_a_second_run_decodes_nothing_and_reads_nothing(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = opened(root, cache)
    monkeypatch.setattr(decode, "read_picture", never)
    monkeypatch.setattr(FileSource, "read", never)
    second, after = opened(root, cache)
    assert (second.fingerprint, after.cached, after.path) == (first.fingerprint, True, before.path)
    assert torch.equal(second["photo"].pictures(), first["photo"].pictures())


def test_pictures_that_moved_or_were_touched_find_their_store(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = opened(root, cache)
    monkeypatch.setattr(decode, "read_picture", never)
    (root / "art" / "1.png").touch()
    assert opened(root, cache)[1].cached
    moved, report = opened(shutil.copytree(root, root.parent / "copy"), cache)
    assert (moved.name, moved.fingerprint, report.cached) == ("copy", first.fingerprint, True)
    assert len(stores(cache)) == 1


def test_other_contents_labels_or_settings_are_another_store(root: Path, cache: Path) -> None:
    prints = [opened(root, cache)[0].fingerprint]
    file = root / "art" / "1.png"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    time.sleep(0.02)
    write(root, {"art/1.png": flat(9)})
    os.utime(file, ns=times)  # only the change time tells
    prints.append(opened(root, cache)[0].fingerprint)
    (root / "photo" / "dog").rename(root / "photo" / "emu")
    prints.append(opened(root, cache)[0].fingerprint)
    prints.append(opened(root, cache, size=4)[0].fingerprint)
    prints.append(opened(root, cache, limit=1)[0].fingerprint)
    assert len(set(prints)) == len(stores(cache)) == 5


def test_the_fingerprint_is_of_what_training_sees(root: Path, cache: Path) -> None:
    first = opened(root, cache)[0].fingerprint
    (root / "art" / "1.png").rename(root / "art" / "0.png")
    write(root, {"art/2.png": encoded(Image.new("RGB", (6, 2), (2, 0, 0)), compress_level=0)})
    dataset, report = opened(root, cache)
    assert (dataset.fingerprint, report.cached) == (first, False)


def test_a_limit_holds_in_every_domain(root: Path, cache: Path) -> None:
    dataset, _ = opened(root, cache, limit=1)
    assert [len(domain) for domain in dataset.domains] == [1, 1]


def test_progress_counts_reading_and_decoding(root: Path, cache: Path) -> None:
    write(root, {"art/bad.png": b"text"})
    steps: list[tuple[int, int]] = []
    open_store(resolve(root), cache=cache, progress=lambda *step: steps.append(step))
    assert steps == [(5, 10), (10, 10)]


def test_tensors_are_mapped_and_writing_to_them_stays_in_memory(root: Path, cache: Path) -> None:
    dataset, report = opened(root, cache)
    file = report.path / store.IMAGES
    before = file.read_bytes()
    dataset["art"].images.fill_(7)
    assert file.read_bytes() == before
    assert np.load(file, allow_pickle=False).shape == (4, 3, 6, 6)
    assert opened(root, cache)[0]["art"].images[0, 0, 0, 0] == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def reshape(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"(4, 3,", b"(3, 4,"))


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("images.npy", cut, "images.npy has 559 bytes, 560 were written"),
        ("images.npy", Path.unlink, "images.npy: no such file or directory"),
        ("images.npy", reshape, "images.npy does not match its checksum"),
        ("images.npy", lambda path: path.write_bytes(bytes(560)), "images.npy does not match its checksum"),
        ("sizes.npy", flip, "sizes.npy does not match its checksum"),
        ("labels.npy", cut, "labels.npy does not match its checksum"),
        ("labels.npy", Path.unlink, "labels.npy: no such file or directory"),
        ("meta.json", cut, "meta.json is not JSON"),
        ("meta.json", Path.unlink, "meta.json: no such file or directory"),
        ("meta.json", lambda path: path.write_text("[]"), "meta.json does not match its checksum"),
        ("meta.json", lambda path: path.write_text(path.read_text().replace("cat", "cow")), "meta.json does not match"),
        ("meta.json", lambda path: path.write_bytes(b"\xff"), "meta.json is not JSON"),
    ],
)
def test_a_damaged_store_is_refused_by_name(
    root: Path, cache: Path, name: str, damage: Callable[[Path], object], reason: str
) -> None:
    place = opened(root, cache)[1].path
    damage(place / name)
    message = refused(CheckpointError, root, cache)
    assert message.startswith(f"the cache '{place}' is damaged (")
    assert reason in message
    assert f"delete it: `fedgala data cache clear` or rm -r '{place}'" in message
    assert place.is_dir()  # nothing is deleted unasked
    shutil.rmtree(place)
    assert not opened(root, cache)[1].cached


def test_a_store_under_another_name_is_refused(root: Path, cache: Path) -> None:
    small = opened(root, cache, size=4)[1].path
    place = opened(root, cache)[1].path
    shutil.rmtree(place)
    shutil.copytree(small, place)
    assert f"meta.json belongs to the store {small.name}" in refused(CheckpointError, root, cache)


def test_a_cache_that_cannot_be_written(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    message = refused(DataError, root, place)
    assert message.startswith(f"the image cache '{place}/stores' cannot be written (not a directory): make room or")
    assert message.endswith("set FEDGALA_CACHE to another folder")


def test_a_cache_that_is_read_only_still_serves(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(root, cache)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", read_only)
    monkeypatch.setattr(Path, "mkdir", read_only)
    (root / "art" / "1.png").touch()
    assert opened(root, cache)[1].cached
    assert "cannot be written (read-only file system)" in refused(DataError, root, cache, size=4)


def test_a_full_disk_is_one_line_and_leaves_nothing(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), np.uint8)
    write(root, {f"art/{i}.png": encoded(Image.fromarray(noise)) for i in range(4)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # a write stops in the middle, as on a full disk
    try:
        message = refused(DataError, root, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written (file too large): make room" in message
    assert list((cache / "stores").iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 10))
    assert "cannot be written (0 MB needed, 0 MB free)" in refused(DataError, root, cache)
    assert list((cache / "stores").iterdir()) == []


def test_an_interrupted_decode_leaves_nothing(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decode, "read_picture", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened(root, cache)
    assert list((cache / "stores").iterdir()) == []
    assert not opened(root, cache)[1].cached


def test_pictures_that_change_while_they_are_read(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FileSource.read
    count = iter(range(1000))
    monkeypatch.setattr(FileSource, "read", lambda self: read(self) + bytes([next(count)]))
    assert "changed while it was read: run again" in refused(DataError, root, cache)


def test_a_failing_disk_is_no_property_of_a_picture(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FileSource) -> bytes:
        raise OSError(errno.EIO, "Input/output error", self.path)

    monkeypatch.setattr(FileSource, "read", fail)
    assert "'art/1.png' cannot be read (input/output error): try again" in refused(DataError, root, cache)


def test_the_loser_of_a_race_uses_the_store_of_the_winner(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = store._build

    def build_slowly(*args: Any) -> None:
        build(*args)
        monkeypatch.setattr(store, "_build", build)
        winner, report = opened(root, cache)  # with the other's work still there: its owner lives
        assert not report.cached
        assert len(stores(cache)) == 2
        prints.append(winner.fingerprint)

    prints: list[str] = []
    monkeypatch.setattr(store, "_build", build_slowly)
    prints.append(opened(root, cache)[0].fingerprint)
    assert prints[0] == prints[1]
    assert len(stores(cache)) == 1


OTHER_PROCESS = """
import sys, time
from pathlib import Path
from fedgala.data import decode
from fedgala.data.resolve import resolve
from fedgala.data.store import open_store

def slowly(*args, read=decode.read_picture):
    print("decoding", flush=True)
    time.sleep(float(sys.argv[3]))
    return read(*args)

decode.read_picture = slowly
print(open_store(resolve(sys.argv[1]), cache=Path(sys.argv[2])).fingerprint)
"""


def other_process(root: Path, cache: Path, delay: float) -> "subprocess.Popen[str]":
    """Another process that is now decoding the same pictures, `delay` seconds for each."""
    source = str(Path(store.__file__).parents[2])
    command = [sys.executable, "-c", OTHER_PROCESS, str(root), str(cache), str(delay)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source})
    assert process.stdout is not None
    assert process.stdout.readline() == "decoding\n"
    return process


def test_a_killed_decode_leaves_no_half_store_and_is_swept(root: Path, cache: Path) -> None:
    process = other_process(root, cache, 60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (leftover,) = stores(cache)
    assert leftover.name.startswith(".stage-")
    dataset, report = opened(root, cache)
    assert (len(dataset["art"]), report.cached) == (2, False)
    assert stores(cache) == [report.path]


def test_two_processes_at_once_are_both_right(root: Path, cache: Path) -> None:
    process = other_process(root, cache, 0.5)
    dataset, report = opened(root, cache)
    assert not report.cached
    output, _ = process.communicate()
    assert output.split()[-1] == dataset.fingerprint
    assert stores(cache) == [report.path]


def test_without_a_home_the_cache_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEDGALA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)  # what it does for a user without a home
    with pytest.raises(ConfigError, match="no home folder to keep pictures in: set FEDGALA_CACHE"):
        default_cache()


def test_where_stores_are_kept(monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path) -> None:
    for name in ("FEDGALA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "fedgala"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache() == Path("/xdg/fedgala")
    monkeypatch.setenv("FEDGALA_CACHE", "~/mine")
    assert default_cache() == tmp_path / "mine"
    assert clear_cache() == 0
    open_store(resolve(root))
    (tmp_path / "mine" / "other").write_text("kept")
    assert clear_cache() > 560
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["other"]
