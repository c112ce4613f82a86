"""What says domain and class where folders do not: annotations, lists and tables, whole and broken."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedgala.data.catalog import CATALOG
from fedgala.data.listing import Listing
from fedgala.data.resolve import resolve
from fedgala.errors import DataError
from layouts import annotations, pixels, small, unique_names, write


def test_an_image_with_two_animals_counts_for_both(tmp_path: Path) -> None:
    files = {f"location_38/{c}/{c}.png": pixels(n) for n, c in enumerate(CATALOG["TerraIncognita"].classes)}
    files["location_43/cat/both.png"] = files["location_43/dog/both.png"] = pixels(99)
    listing = resolve(write(tmp_path, annotations(files)))
    assert Counter((it.domain, it.label) for it in listing.items if "both" in it.name) == {
        ("location_43", "cat"): 1,
        ("location_43", "dog"): 1,
    }
    assert listing.layout.startswith(
        "image files beside annotations (eccv_18_annotation_files/cis_test_annotations.json"
    )
    assert listing.notes() == (
        "2 pictures of other places or animals left out: eccv_18_all_images_sm/far.png, eccv_18_all_images_sm/off.png",
    )


def damage_annotations(root: Path, change: Callable[[dict[str, Any]], object]) -> Listing:
    write(root, annotations(unique_names(small("TerraIncognita", 1)), 1))
    (path,) = root.glob("*/*.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return resolve(root)


def test_odd_annotations_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["annotations"] += [
            7,
            {"image_id": "id-0001.png"},
            {"category_id": 3},
            {"image_id": [], "category_id": {}},
        ]
        content["images"] += [{"id": "gone", "file_name": "../gone.png", "location": 38}, {"id": 3}]
        content["annotations"].append({"image_id": "gone", "category_id": 0})

    notes = damage_annotations(tmp_path, change).notes()
    name = "eccv_18_annotation_files/train_annotations.json"
    assert f"{name}: 4 rows of annotations without what is needed" in notes
    assert f"{name}: 1 row of images without what is needed" in notes
    assert "1 image annotated but not here: gone.png" in notes


def test_annotations_without_their_images(tmp_path: Path) -> None:
    files = annotations(unique_names(small("TerraIncognita", 1)))
    write(tmp_path, {path: data for path, data in files.items() if path.endswith(".json")} | {"other/1.png": pixels(0)})
    with pytest.raises(DataError, match=r"names 41 images of TerraIncognita, none of which is here"):
        resolve(tmp_path)


def test_lists_tell_classes_where_folders_do_not(tmp_path: Path) -> None:
    paths = {f"images/{d}{n}.png": (d, n % 3 + 1) for d in ("art", "photo") for n in range(9)}
    write(tmp_path / "mine", {path: pixels(n) for n, path in enumerate(paths)})
    for domain in ("art", "photo"):
        lines = [f"{path} {label}" for path, (d, label) in paths.items() if d == domain]
        (tmp_path / "mine" / f"{domain}_train.txt").write_text("\r\n".join([*lines, "images/gone.png 2", "nonsense"]))
    listing = resolve(tmp_path / "mine")
    assert (listing.name, listing.domains, listing.classes) == ("mine", ("art", "photo"), ("1", "2", "3"))
    assert {item.name: (item.domain, int(item.label or 0)) for item in listing.items} == paths
    assert listing.layout == "lists (art_train.txt, photo_train.txt)"
    assert "classes are called by the lists' numbers, 1 to 3" in listing.notes()
    assert "art_train.txt: 1 line about pictures that are not here: images/gone.png" in listing.notes()
    assert "art_train.txt: 1 line without a path and a class" in listing.notes()


def test_pictures_listed_twice(tmp_path: Path) -> None:
    write(tmp_path, {f"images/{n}.png": pixels(n) for n in range(4)})
    (tmp_path / "a.csv").write_text(
        "path,site,class\n" + "".join(f"images/{n}.png,s{n % 2},c\n" for n in (0, 1, 2, 3, 0))
    )
    assert len(resolve(tmp_path).items) == 4
    (tmp_path / "a.csv").write_text((tmp_path / "a.csv").read_text() + "images/0.png,s1,d\n")
    assert "1 picture listed for several classes or domains: images/0.png" in resolve(tmp_path).notes()


def test_files_that_only_look_like_lists_do_not_matter(tmp_path: Path) -> None:
    odd = {
        "README.txt": b"dog 1\ncat 2\n",
        "b.txt": b"\xff\xfe\0",
        "c.csv": b"",
        "d.json": b"[1]",
        "e.json": b"{",
        "f.csv": b'"',
    }
    listing = resolve(write(tmp_path, {f"{d}/{n}.jpg": b"" for d in "ab" for n in range(3)} | odd))
    assert (listing.domains, listing.classes) == (("a", "b"), ())
    assert "e.json is not JSON, or cannot be read: get it again if it holds annotations" in listing.notes()
