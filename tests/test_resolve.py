"""One data set is one value, in whatever layout it lies on disk and wherever one points."""

import itertools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedgala.data.catalog import CATALOG
from fedgala.data.resolve import resolve
from fedgala.data.store import open_store
from fedgala.errors import DataError
from layouts import (
    Files,
    annotations,
    below,
    lists,
    pixels,
    small,
    spelled,
    split,
    table,
    unique_names,
    write,
    write_tar,
    write_zip,
)

Writer = Callable[[Path, Files], Path]


def value(named: str | Path) -> tuple[Any, ...]:
    """All that training sees of a data set."""
    data = open_store(resolve(named))
    labels = [None if domain.labels is None else domain.labels.tolist() for domain in data.domains]
    return data.name, data.names, data.classes, labels, data.fingerprint


def tree(shape: Callable[[Files], Files]) -> Writer:
    return lambda root, files: write(root, shape(files))


def other_case(name: str) -> str:
    return name.title().replace("_", " ")


def lower(name: str) -> str:
    return name.lower().replace(" ", "_")


CLASS_NUMBER = {name: number for number, name in enumerate(CATALOG["Office-Home"].classes)}
VLCS_CLASSES = {name: str(number) for number, name in enumerate(CATALOG["VLCS"].classes)}
VLCS_DOMAINS = dict(
    zip(("Caltech101", "LabelMe", "SUN09", "VOC2007"), ("CALTECH", "LABELME", "SUN", "PASCAL"), strict=True)
)
H5 = "raw_images/Train val splits and h5py files pre-read"
KFOLD = ("train_kfold", "crossval_kfold", "test_kfold")
PACS: dict[str, Writer] = {
    "DomainBed": tree(lambda f: below("PACS", f)),
    "kfold": tree(lambda f: below("kfold", f)),
    "bare": tree(lambda f: f),
    "in a repository": tree(lambda f: below("Homework3-PACS/PACS", f) | {"Homework3-PACS/README.md": b"PACS"}),
    "Dassl": tree(lambda f: below("pacs/images", f) | below("pacs/splits", lists(f, KFOLD, 1))),
    "FACT": tree(lambda f: below("raw_images", f) | below(H5, lists(f, KFOLD, 1) | {"photo_test.hdf5": b"h5"})),
    "FedGaLA's csv": tree(lambda f: below("PACS", f) | {"PACS/pacs.csv": table(f, "data,domain,cat", "PACS/")}),
    "WILDS": tree(lambda f: below("pacs_v1.0", f) | {"pacs_v1.0/metadata.csv": table(f)}),
    "flat with a table": tree(
        lambda f: {f"all/{n}.png": d for n, d in enumerate(f.values())} | {"metadata.csv": renamed_table(f)}
    ),
    "other spelling": tree(lambda f: spelled(f, other_case, str.upper)),
    "without accents on splits": tree(lambda f: below("pacs", split(f, ("train", "val", "test"), 0))),
    "tar": lambda root, f: write_tar(root / "PACS.tar", below("PACS", f)),
    "tar without a top folder": lambda root, f: write_tar(root / "x.tar", f),
    "tar.gz": lambda root, f: write_tar(root / "pacs.tar.gz", below("kfold", f), "w:gz"),
    "tar.xz under another name": lambda root, f: write_tar(root / "download", below("PACS", f), "w:xz"),
    "zip": lambda root, f: write_zip(root / "PACS.zip", below("kfold", f)),
    "stored zip": lambda root, f: write_zip(root / "PACS.zip", below("a/b/PACS", f), zipfile.ZIP_STORED),
    "zip in a folder": lambda root, f: write_zip(root / "deep" / "PACS.zip", below("kfold", f)).parent.parent,
}


def renamed_table(files: Files) -> bytes:
    numbers = itertools.count()
    return "\n".join(
        ["path,domain,category", *(f"all/{next(numbers)}.png,{p.split('/')[0]},{p.split('/')[1]}" for p in files)]
    ).encode()


def bare_lists(files: Files) -> Files:
    """``Art.txt``: lists named after the domain and nothing else."""
    return {name.replace("_list", ""): data for name, data in lists(files, ("list",)).items()}


def lists_of_twenty(files: Files) -> Files:
    """DARLING's lists of the 20 classes: lines of path, class and domain."""
    domains = sorted({path.split("/")[0] for path in files})
    return {
        f"train_test_list/20_{domain}_{part}_fold_0{end}.txt": "".join(
            f"{path} {path.split('/')[1]} {number}\n" for path in files if path.startswith(f"{domain}/")
        ).encode()
        for number, domain in enumerate(domains)
        for part, end in (("train", "_ft0.1"), ("test", ""), ("traintest", ""))
    }


OFFICE_HOME: dict[str, Writer] = {
    "official": tree(
        lambda f: below(
            "OfficeHomeDataset_10072016", f | {"ImageInfo.csv": b"a,b\n1,2\n", "imagelist.txt": b"Art/x 1\n"}
        )
    ),
    "DomainBed": tree(lambda f: below("office_home", f)),
    "TLL": tree(
        lambda f: (
            below("office-home", spelled(f, lambda d: d.replace(" ", "_")))
            | below("office-home/image_list", lists(f, ("list",)))
        )
    ),
    "AFN": tree(lambda f: spelled(f, lambda d: d.replace(" ", "_")) | bare_lists(f)),
    "one word": tree(lambda f: spelled(f, lambda d: d.replace(" ", ""))),
    "Dassl": tree(lambda f: below("office_home", spelled(f, lower))),
    "older Dassl": tree(
        lambda f: below("office_home_dg", split(spelled(f, lower, lambda c: f"{CLASS_NUMBER[c]:03d}_{c}")))
    ),
    "zip": lambda root, f: write_zip(root / "OfficeHome.zip", below("OfficeHomeDataset_10072016", f)),
}


def zips(root: Path, files: Files) -> Path:
    """DomainNet as it is downloaded: a zip for each domain, and lists."""
    for domain in {path.split("/")[0] for path in files}:
        write_zip(root / f"{domain}.zip", {path: data for path, data in files.items() if path.startswith(f"{domain}/")})
    return write(root, lists(files))


DOMAINNET: dict[str, Writer] = {
    "DomainBed": tree(lambda f: below("domain_net", f)),
    "Dassl": tree(lambda f: below("domainnet", f | below("splits", lists(f)))),
    "DARLING": tree(lambda f: below("DomainNet", f | lists_of_twenty(f))),
    "each unpacked in its own folder": tree(lambda f: {f"{p.split('/')[0]}/{p}": d for p, d in f.items()}),
    "cleaned ones elsewhere": tree(
        lambda f: {("multi-source/groundtruth/" if p[0] in "cp" else "multi-source/") + p: d for p, d in f.items()}
    ),
    "zips": zips,
}
VLCS: dict[str, Writer] = {
    "DomainBed": tree(lambda f: below("VLCS", f)),
    "Dassl": tree(
        lambda f: below(
            "VLCS", split(spelled(f, VLCS_DOMAINS.__getitem__, VLCS_CLASSES.__getitem__), ("train", "crossval", "test"))
        )
    ),
}
TERRA: dict[str, Writer] = {
    "DomainBed": tree(lambda f: below("terra_incognita", f)),
    "short names": tree(lambda f: spelled(f, lambda d: "L" + d.removeprefix("location_"))),
    "raw": tree(annotations),
    "raw, one file of annotations": tree(lambda f: annotations(f, 1)),
    "raw tar": lambda root, f: write_tar(root / "terra.tar", below("terra", annotations(f))),
    "raw archives": lambda root, f: raw_archives(root, annotations(f)),
}


def raw_archives(root: Path, files: Files) -> Path:
    for name in ("eccv_18_all_images_sm", "eccv_18_annotation_files"):
        part = {path: data for path, data in files.items() if path.startswith(name)}
        write_tar(root / f"{name}.tar.gz", part, "w:gz")
    return root


CASES = {"PACS": PACS, "Office-Home": OFFICE_HOME, "DomainNet-20": DOMAINNET, "VLCS": VLCS, "TerraIncognita": TERRA}


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_is_one_value_in_every_layout(name: str, tmp_path: Path) -> None:
    files = unique_names(small(name)) if name == "TerraIncognita" else small(name)
    values = {layout: value(writer(tmp_path / str(n), files)) for n, (layout, writer) in enumerate(CASES[name].items())}
    expected = next(iter(values.values()))
    assert expected[0] == name
    assert expected[1:3] == (tuple(sorted(CATALOG[name].domains)), tuple(sorted(CATALOG[name].classes)))
    assert {layout: found for layout, found in values.items() if found != expected} == {}


@pytest.mark.parametrize("steps", [(), ("data",), ("data", "PACS"), ("data", "PACS", "PACS")])
def test_one_may_point_anywhere_above_the_domains(tmp_path: Path, steps: tuple[str, ...]) -> None:
    write(tmp_path, below("data/PACS/PACS", small("PACS", 1)))
    listing = resolve(tmp_path.joinpath(*steps))
    assert (listing.name, len(listing.items), listing.notes()) == ("PACS", 28, ())


def refusal(named: str | Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        resolve(named)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_one_domain_alone_names_the_folder_above(tmp_path: Path) -> None:
    write(tmp_path, below("PACS", small("PACS", 1)))
    refusal(tmp_path / "PACS" / "photo", "photo' is the domain photo of PACS alone", f"above it, '{tmp_path / 'PACS'}'")


def test_two_copies_and_two_data_sets_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "copies", below("PACS", small("PACS", 1)) | below("backup/PACS", small("PACS", 1)))
    refusal(tmp_path / "copies", "holds PACS 2 times", "copies/PACS, ", "copies/backup/PACS", "name one of them")
    write(tmp_path / "both", below("PACS", small("PACS", 1)) | below("VLCS", small("VLCS", 1)))
    refusal(tmp_path / "both", "holds several data sets (PACS, VLCS): name one")


def test_part_of_a_data_set_is_still_that_data_set(tmp_path: Path) -> None:
    files = {path: data for path, data in small("PACS", 1).items() if path.startswith("p") and "/dog/" not in path}
    listing = resolve(write(tmp_path, files))
    assert (listing.known, listing.domains, len(listing.classes)) == ("PACS", ("photo",), 6)


def test_what_does_not_belong_to_a_data_set_is_left_out_by_name(tmp_path: Path) -> None:
    listing = resolve(write(tmp_path, small("PACS", 3) | {"photo/zebra/1.png": pixels(0), "figures/1.png": pixels(1)}))
    assert (listing.known, len(listing.items)) == ("PACS", 84)
    assert listing.notes() == ("2 pictures left out, not in the place of any class: figures, photo/zebra",)


def test_a_data_set_with_familiar_names_stays_its_own(tmp_path: Path) -> None:
    listing = resolve(
        write(tmp_path / "mine", {f"{d}/{c}/1.png": b"" for d in ("photo", "sketch") for c in ("dog", "cow")})
    )
    assert (listing.name, listing.known, listing.classes) == ("mine", None, ("cow", "dog"))


@pytest.fixture(scope="module")
def domainnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 345 classes, as a tar: thousands of files are slow to write."""
    return write_tar(
        tmp_path_factory.mktemp("dn") / "dn.tar", dict.fromkeys(below("domain_net", small("DomainNet", 1)), b"x")
    )


def test_parts_of_domainnet_are_chosen_by_name(domainnet: Path) -> None:
    assert resolve(domainnet).known == "DomainNet"
    for name, size in [("domainnet-20", 120), ("DomainNet20", 120), ("mini-domainnet", 504), ("domainnet126", 504)]:
        listing = resolve(f"{name}:{domainnet}")
        assert len(listing.items) == size
        assert listing.classes == tuple(sorted(CATALOG[listing.known or ""].classes))
        assert any("pictures left out" in note for note in listing.notes())


def test_class_names_that_are_splits_elsewhere(domainnet: Path) -> None:
    assert {item.label for item in resolve(domainnet).items if "/train/" in item.name} == {"train"}


@pytest.mark.parametrize(("place", "split"), [("splits_mini/", "val"), ("", "list")])
def test_the_lists_of_a_part_choose_its_pictures(tmp_path: Path, place: str, split: str) -> None:
    files = small("mini-DomainNet", 2)
    chosen = {path: data for path, data in files.items() if path.endswith("1.png")}
    named = lists(chosen, (split,))
    named[f"clipart_{split}.txt"] += b"clipart/ant/gone.png 3\n"
    write(tmp_path, files | {place + name: data for name, data in named.items()})
    listing = resolve(f"mini-domainnet:{tmp_path}")
    assert len(listing.items) == len(chosen)
    assert "1 picture listed but not here: gone.png" in listing.notes()
    write(tmp_path, dict.fromkeys((place + name for name in named), b"clipart/ant/gone.png 3\n"))
    refusal(f"mini-domainnet:{tmp_path}", "the lists of mini-DomainNet", "name no picture that is there")


def test_a_name_that_does_not_fit_its_folder(tmp_path: Path) -> None:
    write(tmp_path, small("VLCS", 1))
    refusal(f"PACS:{tmp_path}", "holds nothing of PACS: expected PACS/<domain>/<class>", "without 'PACS:'")
    refusal(f"PAX:{tmp_path}", "there is no folder or archive 'PAX:/")
    os.rename(write(tmp_path / "plain", small("VLCS", 1)), tmp_path / "pacs:x")
    assert resolve(tmp_path / "pacs:x").known == "VLCS"


def test_terra_incognita_without_its_empty_class(tmp_path: Path) -> None:
    write(tmp_path, annotations(unique_names(small("TerraIncognita", 1))))
    listing = resolve(f"terrainc-9:{tmp_path}")
    assert (listing.known, len(listing.classes)) == ("TerraIncognita-9", 9)
    assert "2 pictures" not in " ".join(listing.notes())
    write(tmp_path / "folders", {p: d for p, d in small("TerraIncognita", 1).items() if "/empty/" not in p})
    assert resolve(tmp_path / "folders").known == "TerraIncognita-9"
