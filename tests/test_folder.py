"""A directory tree as a listing: order, layouts, clutter, and one clear line for each mistake."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fedgala.data.folder import FileSource, walk
from fedgala.data.listing import Item, Listing, PictureError
from fedgala.data.resolve import resolve
from fedgala.errors import DataError


def tree(root: Path, *names: str) -> Path:
    """Files of one byte: listing opens none of them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def refusal(root: Path, *words: str) -> str:
    with pytest.raises(DataError) as caught:
        resolve(root)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def names(listing: Listing) -> list[str]:
    return [item.name for item in listing.items]


def test_labelled_layout_in_natural_order(tmp_path: Path) -> None:
    root = tree(tmp_path / "Set", "b/dog/img10.jpg", "b/dog/img2.PNG", "b/cat/x.webp", "a/dog/1.tiff", "a/ant/1.jpeg")
    listing = resolve(root)
    assert names(listing) == ["a/ant/1.jpeg", "a/dog/1.tiff", "b/cat/x.webp", "b/dog/img2.PNG", "b/dog/img10.jpg"]
    assert listing.domains == ("a", "b")
    assert listing.classes == ("ant", "cat", "dog")  # the union: neither domain has all
    assert (listing.name, listing.root, listing.notes()) == ("Set", root, ())
    assert listing.items[0].label == "ant"
    assert listing.items[0].source.read() == b"x"


def test_a_domain_without_class_folders_is_unlabelled(tmp_path: Path) -> None:
    listing = resolve(tree(tmp_path, "free/2.jpg", "free/10.jpg", "free/notes/readme.txt", "known/dog/1.jpg"))
    assert [(item.name, item.label) for item in listing.items] == [
        ("free/2.jpg", None),
        ("free/10.jpg", None),
        ("known/dog/1.jpg", "dog"),
    ]
    assert listing.classes == ("dog",)


def test_clutter_is_ignored_and_the_rest_is_named(tmp_path: Path) -> None:
    tree(tmp_path, "a/c/1.jpg", "a/c/._1.jpg", "a/.hidden/1.jpg", "__MACOSX/a/1.jpg", "a/c/Thumbs.db", ".DS_Store")
    assert names(resolve(tmp_path)) == ["a/c/1.jpg"]
    assert resolve(tmp_path).notes() == ()
    tree(tmp_path, "README.md", "a/list.csv", "a/c/1.txt", "stray.jpg")
    (tmp_path / "a" / "nothing").mkdir()
    (tmp_path / "sketch").mkdir()
    listing = resolve(tmp_path)
    assert listing.others == ("README.md", "a/list.csv", "a/c/1.txt")
    assert listing.notes() == (
        "1 picture left out, not in the place of any class: at the top",
        "3 files not read as pictures: README.md, a/list.csv, a/c/1.txt",
        "2 folders without pictures: a/nothing, sketch",
    )


def test_spaces_and_other_scripts_and_one_spelling_for_two_encodings(tmp_path: Path) -> None:
    tree(tmp_path, "Real World/café au lait/画像 1.jpg", "art/cafe\u0301 au lait/1.jpg")  # macOS writes é as e + accent
    listing = resolve(tmp_path)
    assert listing.classes == ("café au lait",)
    assert names(listing) == ["Real World/café au lait/画像 1.jpg", "art/café au lait/1.jpg"]
    assert [item.source.read() for item in listing.items] == [b"x", b"x"]


def test_names_that_would_break_a_line_or_an_encoding(tmp_path: Path) -> None:
    tree(tmp_path, "a/c/two\nlines.jpg", "a/c/" + os.fsdecode(b"\xff.jpg"))
    assert names(resolve(tmp_path)) == [r"a/c/\udcff.jpg", r"a/c/two\nlines.jpg"]


def test_links(tmp_path: Path) -> None:
    tree(tmp_path, "set/a/c/1.jpg", "elsewhere/2.jpg")
    root = tmp_path / "set"
    (root / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    for loop in (root / "up", root / "a" / "up", root / "a" / "c" / "here"):
        loop.symlink_to(loop.parent)
    (root / "a" / "c" / "gone.jpg").symlink_to("nothing")
    (root / "a" / "c" / "round.jpg").symlink_to("round.jpg")
    os.mkfifo(root / "a" / "c" / "pipe.jpg")  # opening it would wait for ever
    listing = resolve(root)
    assert names(listing) == ["a/c/1.jpg", "a/c/gone.jpg", "a/linked/2.jpg"]
    assert listing.others == ("a/c/pipe.jpg", "a/c/round.jpg")
    assert listing.remarks == ("3 folders not followed, a circle or too deep: a/c/here, a/up, up",)
    with pytest.raises(PictureError, match="not a regular file"):
        FileSource(str(root / "a" / "c" / "pipe.jpg")).read()


def test_links_in_a_circle_through_two_folders_end(tmp_path: Path) -> None:
    tree(tmp_path, "x/a/c/1.jpg", "x/b/c/2.jpg")
    (tmp_path / "x" / "a" / "c" / "to_b").symlink_to(tmp_path / "x" / "b")
    (tmp_path / "x" / "b" / "c" / "to_a").symlink_to(tmp_path / "x" / "a")
    paths = [folder.place for folder in walk(tmp_path / "x").filled]
    assert sorted(paths) == ["a/c", "a/c/to_b/c", "b/c", "b/c/to_a/c"]


def test_a_mixture_inside_one_domain_is_refused(tmp_path: Path) -> None:
    refusal(tree(tmp_path, "a/dog/1.jpg", "a/2.jpg"), "/a' mixes 1 picture of its own (2.jpg)", "(dog)", "move one")


def test_folders_above_the_domains_do_not_matter(tmp_path: Path) -> None:
    tree(tmp_path, "data/My Set/site 1/dog/1.jpg", "data/My Set/site 2/dog/1.jpg")
    for root in (tmp_path, tmp_path / "data", tmp_path / "data" / "My Set"):
        listing = resolve(root)
        assert (listing.name, listing.domains, listing.classes) == ("My Set", ("site 1", "site 2"), ("dog",))


def test_folders_that_leave_open_what_is_a_domain_are_refused(tmp_path: Path) -> None:
    refusal(tree(tmp_path / "two", "x/a/c/1.jpg", "y/b/c/1.jpg"), "/two' holds several data sets (x, y)", "name one")
    deep = tree(tmp_path / "deep", *(f"{domain}/c/{i}.jpg" for domain in "ab" for i in range(9)), "a/c/thumbs/1.jpg")
    refusal(deep, "/deep/a/c/thumbs' lie a folder deeper than most", "move them up or away")


def test_a_few_pictures_elsewhere_are_left_out_by_name(tmp_path: Path) -> None:
    listing = resolve(tree(tmp_path, *(f"set/{d}/c/{i}.jpg" for d in "ab" for i in range(20)), "docs/figures/1.png"))
    assert len(listing.items) == 40
    assert listing.notes() == ("1 picture left out, not in the place of any class: docs/figures",)


def test_splits_are_merged_unless_they_are_all_there_is(tmp_path: Path) -> None:
    listing = resolve(tree(tmp_path / "x", "a/train/dog/1.jpg", "a/val/dog/2.jpg", "b/dog/3.jpg", "b/test/4.jpg"))
    assert [(item.domain, item.label) for item in listing.items] == [
        ("a", "dog"),
        ("a", "dog"),
        ("b", "dog"),
        ("b", "test"),
    ]
    assert listing.layout == "class folders in domain folders, train and val merged"
    assert resolve(tree(tmp_path / "y", "train/dog/1.jpg", "val/dog/2.jpg")).domains == ("train", "val")
    assert resolve(tree(tmp_path / "z", "a/train/1.jpg", "b/val/2.jpg")).domains == ("a", "b")


def test_a_link_to_nothing_does_not_mean_itself(tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to("nowhere")
    with pytest.raises(DataError, match="there is no folder or archive '.*photos': name one that holds"):
        resolve(tmp_path / "photos")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/photos", ""])
def test_a_home_that_is_not_there_and_no_name_at_all(name: str) -> None:
    with pytest.raises(DataError, match=f"'{name}': name"):
        resolve(name)


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    tree(tmp_path, "OfficeHome/Art/Alarm_Clock/1.jpg", "other.jpg")
    refusal(tmp_path / "officehom", "there is no folder", f"did you mean '{tmp_path / 'OfficeHome'}'?")
    refusal(tmp_path / "OficeHome" / "Art", f"did you mean '{tmp_path / 'OfficeHome'}'?")
    refusal(tmp_path / "zzz", "name one that holds <domain>/<class>/*.jpg")


def test_a_root_without_pictures(tmp_path: Path) -> None:
    refusal(tree(tmp_path, "file.tar") / "file.tar", "/file.tar' is damaged, or no tar or zip archive", "get it again")
    (tmp_path / "file.tar").unlink()
    refusal(tmp_path, "holds no pictures", "<domain>/<class>/*.jpg", "jpeg jpg", "are read")
    refusal(tree(tmp_path, "1.jpg", "2.jpg"), "holds 2 pictures in no domain folder")


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/c/1.jpg")
    scandir = os.scandir

    def denied(path: str) -> object:  # permissions do not stop root, who may run this
        if str(path).endswith("/a/c"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    refusal(tmp_path, "/a/c' cannot be read (permission denied)", "allow reading it")


def listing_of(counts: dict[str, int]) -> Listing:
    items = [Item("d", label, f"{label}/{i}", FileSource("")) for label in sorted(counts) for i in range(counts[label])]
    return Listing("set", Path(), tuple(items))


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [
        ({"a": 10, "b": 10}, 4, {"a": 2, "b": 2}),
        ({"house": 80, "horse": 816, "person": 160}, 12, {"horse": 9, "house": 1, "person": 2}),
        ({"rare": 1, "common": 1000}, 2, {"common": 1, "rare": 1}),
        ({"a": 3, "b": 2}, 100, {"a": 3, "b": 2}),
        ({"small": 2, "large": 5}, 1, {"large": 1}),
    ],
)
def test_a_limit_is_shared_by_size_and_leaves_no_class_out(
    counts: dict[str, int], limit: int, expected: dict[str, int]
) -> None:
    limited = listing_of(counts).limited(limit)
    assert Counter(item.label for item in limited.items) == expected
    assert limited == listing_of(counts).limited(limit)


def test_a_limit_is_spread_evenly_over_each_domain(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"a/{i}.jpg" for i in range(10)), *(f"b/c/{i}.jpg" for i in range(3)))
    assert names(resolve(root).limited(4)) == [
        "a/0.jpg",
        "a/2.jpg",
        "a/5.jpg",
        "a/7.jpg",
        "b/c/0.jpg",
        "b/c/1.jpg",
        "b/c/2.jpg",
    ]


def rewrite(path: Path) -> None:
    """Other bytes, and everything but the change time as it was: as unpacking another version of an archive does."""
    path.write_bytes(b"y")
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("change", [rewrite, Path.touch, Path.unlink, lambda path: path.write_bytes(b"xx")])
def test_a_stamp_changes_with_the_file(tmp_path: Path, change: Callable[[Path], object]) -> None:
    path = tree(tmp_path, "x") / "x"
    os.utime(path, ns=(0, 0))
    source = FileSource(str(path))
    before = source.stamp()
    assert source.stamp() == before
    time.sleep(0.02)  # a file system's clock may tick as slowly as every 10 ms
    change(path)
    assert source.stamp() != before
