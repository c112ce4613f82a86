"""`fedgala data`: what it says, what it ends with, and that a second look is quick."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedgala.cli.app import run
from fedgala.data import decode
from fedgala.data.archive import ArchiveSource
from fedgala.data.catalog import CATALOG
from fedgala.data.check import Check
from fedgala.data.decode import Skipped
from fedgala.data.folder import FileSource
from fedgala.data.listing import Item, Listing
from fedgala.data.resolve import resolve
from fedgala.data.store import open_store
from layouts import annotations, pixels, small, write

REAL = Path(__file__).parents[2] / "shared" / "data" / "pacs128.tar"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run `fedgala data ...` with a cache of its own; exit code, output and messages."""
    monkeypatch.setenv("FEDGALA_CACHE", str(tmp_path / "cache"))

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["data", *map(str, words)])
        return code, *capsys.readouterr()

    return call


TABLE = """\
                dog  elephant  giraffe  guitar  horse  house  person  total
------------  -----  --------  -------  ------  -----  -----  ------  -----
art_painting    379       255      285     184    201    295     449  2,048
cartoon         389       457      346     135    324    288     405  2,344
photo           189       202      182     186    199    280     432  1,670
sketch          772       740      753     608    816     80     160  3,929
total         1,729     1,654    1,566   1,113  1,540    943   1,446  9,991
"""


@pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not there: the real PACS, 36 MB")
def test_the_real_pacs_is_complete_and_a_second_look_is_quick(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.perf_counter()
    code, output, _ = say("check", REAL, "--strict")
    first = time.perf_counter() - began
    assert (code, output.splitlines()[-1]) == (0, "PACS, complete")
    assert TABLE in output
    monkeypatch.setattr(ArchiveSource, "read", None)
    began = time.perf_counter()
    assert say("check", REAL)[:2] == (0, output)
    assert first < 15 and time.perf_counter() - began < 1


def test_a_copy_with_faults_names_each(say: Say, tmp_path: Path) -> None:
    root = write(tmp_path / "PACS", small("PACS", 2))
    (root / "photo" / "dog" / "pic_1.png").write_bytes(pixels(0)[:-40])
    (root / "photo" / "cow").mkdir()
    shutil.copy(root / "sketch" / "dog" / "pic_1.png", root / "cartoon" / "dog" / "pic_2.png")
    shutil.rmtree(root / "sketch" / "house")
    (root / "notes.txt").write_text("mine")
    code, output, _ = say("check", root)
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == f"PACS: {root}, read as class folders in domain folders"
    assert any(line.startswith("photo ") and "1/189" in line and "13/1,670" in line for line in lines)
    assert "unreadable: photo/dog/pic_1.png (truncated)" in lines
    assert "sketch has no house" in lines
    assert "1 picture there more than once: cartoon/dog/pic_2.png = sketch/dog/pic_1.png" in lines
    assert "1 file not read as pictures: notes.txt" in lines
    assert "1 folder without pictures: photo/cow" in lines
    assert lines[-1] == "PACS, not complete: 9,938 pictures missing, 0 extra"
    assert say("check", root, "--strict")[0] == 2


def facts(say: Say, named: object, code: int = 0) -> dict[str, Any]:
    ended, output, _ = say("check", named, "--json")
    assert ended == code
    found = json.loads(output)
    assert isinstance(found, dict)
    return found


def test_json_says_it_all(say: Say, tmp_path: Path) -> None:
    root = write(tmp_path / "PACS", small("PACS", 1) | {"photo/dog/bad.png": b"", "photo/dog/two.png": pixels(0)})
    found = facts(say, root)
    assert (found["name"], found["usable"], found["complete"], found["pictures"]) == ("PACS", True, False, 29)
    assert found["domains"]["photo"] == {"total": 8, "classes": {**dict.fromkeys(CATALOG["PACS"].classes, 1), "dog": 2}}
    assert found["unreadable"] == [["photo/dog/bad.png", "empty file"]]
    assert found["duplicates"] == [["art_painting/dog/pic_1.png", "photo/dog/two.png"]]
    assert ["photo", "dog", 2, 189] in found["differences"]


@pytest.mark.parametrize("name", [name for name, entry in CATALOG.items() if entry.inventories])
def test_the_release_is_told_by_its_counts(name: str) -> None:
    entry = CATALOG[name]
    for release in entry.inventories:
        rows = {
            d: release.table.get(d, (total, *[0] * (len(entry.classes) - 1))) for d, total in release.totals.items()
        }
        items: list[Item] = []
        for domain, row in rows.items():
            for label, count in zip(entry.classes, row, strict=True):
                items += [Item(domain, label, "", FileSource(""))] * count
        ending = f" ({release.name})" if release.name else ""
        whole = Check(Listing(name, Path(), tuple(items), known=name), (), ())
        assert (whole.verdict, whole.complete) == (f"{name}, complete{ending}", True)
        more = [*items, Item(items[0].domain, items[0].label, "bad.png", FileSource(""))]
        bad = Skipped(items[0].domain, "bad.png", "truncated")
        assert not Check(Listing(name, Path(), tuple(more), known=name), (bad,), ()).complete
        part = Check(Listing(name, Path(), tuple(items[1:]), known=name), (), ())
        assert part.verdict == f"{name}, not complete{ending}: 1 picture missing, 0 extra"


def test_two_animals_on_one_image_are_no_duplicate(say: Say, tmp_path: Path) -> None:
    files = {f"{d}/{c}/{d}{c}.png": pixels(n) for n, (d, c) in enumerate((d, c) for d in ("location_38", "location_43")
             for c in CATALOG["TerraIncognita"].classes)}  # fmt: skip
    files["location_38/cat/both.png"] = files["location_38/dog/both.png"] = pixels(1000)
    found = facts(say, write(tmp_path, annotations(files)))
    assert (found["pictures"], found["duplicates"]) == (22, [])
    assert set(found["absent"]) == {"location_100", "location_46"} or found["absent"] == {}


def test_a_folder_of_ones_own_says_how_it_is_read(say: Say, tmp_path: Path) -> None:
    write(
        tmp_path / "mine",
        {f"deep/{d}/{n}.png": pixels(ord(d) + n) for d in "ab" for n in range(3)} | {"deep/c/d/1.png": pixels(7)},
    )
    code, output, _ = say("check", tmp_path / "mine")
    lines = output.splitlines()
    assert (code, lines[-1]) == (0, "deep: 7 pictures in 3 domains, a data set of your own")
    assert lines[0] == f"deep: {tmp_path / 'mine'}, read as class folders in domain folders below deep"
    assert "a      -      3" in lines
    assert facts(say, tmp_path / "mine")["domains"]["a"] == {"total": 3, "classes": None}


def test_what_cannot_be_used_ends_with_two(say: Say, tmp_path: Path) -> None:
    write(tmp_path / "one", {f"site/{n}.png": pixels(n) for n in range(3)})
    code, output, _ = say("check", tmp_path / "one")
    assert (code, "not usable: 1 domain with pictures (site), at least 2 are needed" in output) == (2, True)
    write(tmp_path / "dead", {"a/1.png": pixels(1), "b/1.png": pixels(2), "c/1.png": b"no"})
    code, output, _ = say("check", tmp_path / "dead")
    assert (code, "not usable: no picture can be read of c" in output) == (2, True)
    code, output, errors = say("check", tmp_path / "nothing")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    found = facts(say, tmp_path / "nothing", 2)
    assert found["usable"] is False and "there is no folder or archive" in found["problems"][0]


def test_many_unreadable_files_are_named_in_bounds(say: Say, tmp_path: Path) -> None:
    write(
        tmp_path, {f"{d}/{n}.png": b"" for d in "ab" for n in range(20)} | {"a/x.png": pixels(0), "b/x.png": pixels(1)}
    )
    output = say("check", tmp_path)[1]
    assert output.count("unreadable: ") == 21 and "unreadable: 20 more, which --json names" in output


def test_many_classes_make_rows(say: Say, tmp_path: Path) -> None:
    output = say("check", write(tmp_path, small("DomainNet-20", 1)))[1]
    assert "The_Eiffel_Tower        1          1         1          1     1       1" in output
    assert output.splitlines()[-1] == "DomainNet-20: 120 pictures; there is no count to compare with"


def test_checking_again_decodes_nothing_until_something_changes(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "x", small("VLCS", 1))
    before = say("check", root)
    with monkeypatch.context() as patch:
        patch.setattr(decode, "_look", None)
        assert say("check", root)[:2] == before[:2]
    (kept,) = (tmp_path / "cache" / "checks").iterdir()
    kept.write_text(kept.read_text()[:-3])
    (root / "SUN09" / "dog" / "pic_1.png").write_bytes(b"")
    assert "unreadable: SUN09/dog/pic_1.png (empty file)" in say("check", root)[1]


@pytest.mark.parametrize("labelled", [True, False])
def test_a_pack_is_the_same_data_set_on_another_machine(say: Say, tmp_path: Path, labelled: bool) -> None:
    files = {f"{d}/{'c/' * labelled}{i}.png": pixels(ord(d) + i, 40) for d in "ab" for i in range(9)}
    root = write(tmp_path / "mine", files | ({"a/only/1.jpg": pixels(77)} if labelled else {}))
    tar = tmp_path / "there" / "mine.tar"
    code, output, _ = say("pack", root, "-o", tar, "--size", 16)
    assert (code, output.split(": ")[1][:11]) == (0, f"{19 if labelled else 18} pictures")
    for named in (tar, shutil.copytree(root, tmp_path / "again"), unpacked(tar, tmp_path / "out")):
        found, packed = resolve(root), resolve(named)
        assert (packed.name, packed.domains, packed.classes) == (found.name if named != tmp_path / "again" else "again",
                                                                 found.domains, found.classes)  # fmt: skip
        assert [(it.domain, it.label) for it in packed.items] == [(it.domain, it.label) for it in found.items]
    assert max(open_store(resolve(tar)).domains[0].sizes.flatten().tolist()) == 16
    assert facts(say, tar)["layout"] == "packed by fedgala"


def unpacked(tar: Path, place: Path) -> Path:
    shutil.unpack_archive(tar, place, filter="data")
    return place


def test_a_pack_of_a_benchmark_is_that_benchmark_and_always_the_same_bytes(say: Say, tmp_path: Path) -> None:
    root = write(tmp_path / "kfold", small("PACS", 2) | {"photo/dog/pic_1.jpg": pixels(999)})
    for name in ("a.tar", "b.tar"):
        assert say("pack", root, "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    listing = resolve(tmp_path / "a.tar")
    assert (listing.known, len(listing.items), listing.notes()) == ("PACS", 57, ())
    assert listing.items[0].name == "PACS/art_painting/dog/pic_1.webp"
    assert {"PACS/photo/dog/000028_pic_1.webp", "PACS/photo/dog/000029_pic_1.webp"} <= {it.name for it in listing.items}


def test_a_pack_that_cannot_be_written(say: Say, tmp_path: Path) -> None:
    root = write(tmp_path / "x", small("VLCS", 1))
    code, _, errors = say("pack", root, "-o", tmp_path / "x.zip")
    assert (code, "a pack is a tar, so its name ends in .tar" in errors) == (2, True)
    assert say("pack", root, "-o", tmp_path / "y.tar")[0] == 0
    code, _, errors = say("pack", tmp_path / "y.tar", "-o", tmp_path / "y.tar")
    assert (code, "is what would be packed: write to another name" in errors) == (2, True)
    (tmp_path / "x.tar").mkdir()
    code, _, errors = say("pack", root, "-o", tmp_path / "x.tar")
    assert (code, "can't save" in errors, "Traceback" in errors) == (2, True, False)


def test_a_contact_sheet(say: Say, tmp_path: Path) -> None:
    code, output, _ = say("show", write(tmp_path / "x", small("VLCS", 3)), "-o", tmp_path / "s.png", "--columns", 2)
    assert (code, output.strip()) == (0, str(tmp_path / "s.png"))
    with Image.open(tmp_path / "s.png") as sheet:
        assert sheet.width > sheet.height


def test_fetch_says_where_and_what_to_accept(say: Say) -> None:
    output = say("fetch", "domainnet-20")[1]
    for words in ("ai.bu.edu/M3SDA", "train on painting, real and sketch", "accept", "data check domainnet-20:FOLDER"):
        assert words in output
    assert all(name in say("fetch")[1] for name in CATALOG)
    code, _, errors = say("fetch", "imagenet")
    assert (code, "allowed: DomainNet" in errors) == (2, True)


def test_the_cache_is_listed_and_cleared(say: Say, tmp_path: Path) -> None:
    assert say("cache", "list")[1] == f"{tmp_path / 'cache'}: 0 data sets, 0.0 MiB\n"
    for name in ("one", "two"):
        say("show", write(tmp_path / name, small("VLCS", 1 + (name == "two"))), "-o", tmp_path / "s.png")
    lines = say("cache", "list")[1].splitlines()
    assert len(lines) == 5 and "VLCS" in lines[2] and lines[-1].startswith(f"{tmp_path / 'cache'}: 2 data sets, ")
    key = lines[2].split()[0]
    assert say("cache", "clear", key)[0] == 0
    assert [line.split()[0] for line in say("cache", "list")[1].splitlines()[2:-1]] == [lines[3].split()[0]]
    code, _, errors = say("cache", "clear", "zzz")
    assert (code, "the cache holds nothing named zzz" in errors) == (2, True)
    assert say("cache", "clear")[0] == 0
    assert os.listdir(tmp_path / "cache") == []


def test_the_embedded_data_set_needs_no_check(say: Say) -> None:
    assert say("check", "shapes")[:2] == (0, "shapes is embedded and complete; `fedgala data show shapes` shows it\n")
