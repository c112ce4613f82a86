"""The catalogue: whole, in order, and found under any spelling."""

import pytest

from fedgala.data.catalog import CATALOG, EMBEDDED, Entry, entry_of, find, key, recognise
from fedgala.errors import ConfigError

PACS, HOME, NET = CATALOG["PACS"], CATALOG["Office-Home"], CATALOG["DomainNet"]


@pytest.mark.parametrize("entry", CATALOG.values(), ids=CATALOG)
def test_an_entry_is_sound(entry: Entry) -> None:
    assert len({key(name) for name in entry.classes}) == len(entry.classes)
    assert list(entry.classes) == sorted(entry.classes)  # as numbers are given
    assert entry.home and entry.licence and entry.layout and entry.protocol
    for release in entry.inventories:
        assert set(release.totals) == set(entry.domains)
        for domain, row in release.table.items():
            assert len(row) == len(entry.classes) and sum(row) == release.totals[domain]
    if entry.part_of:
        whole = CATALOG[entry.part_of]
        assert set(entry.classes) < set(whole.classes) and set(entry.domains) <= set(whole.domains)
    for domain, others in entry.domains.items():
        assert {entry.domain(name) for name in [domain, *others.split()]} == {domain}


def test_sizes_are_those_that_are_cited() -> None:
    held = {name: [sum(one.totals.values()) for one in entry.inventories] for name, entry in CATALOG.items()}
    assert held == {
        "PACS": [9_991],
        "Office-Home": [15_588],
        "TerraIncognita": [24_788, 24_330],
        "TerraIncognita-9": [],
        "DomainNet": [586_575, 596_006],
        "DomainNet-20": [],
        "mini-DomainNet": [142_330],
        "VLCS": [],
    }
    assert [len(entry.classes) for entry in CATALOG.values()] == [7, 65, 10, 9, 345, 20, 126, 5]


@pytest.mark.parametrize(
    ("entry", "path", "place"),
    [
        (PACS, ("photo", "dog"), ("photo", "dog")),
        (PACS, ("x", "Art Painting", "DOG"), ("art_painting", "dog")),
        (PACS, ("photo", "train", "dog"), ("photo", "dog")),
        (PACS, ("photo", "dog", "test"), ("photo", "dog")),
        (PACS, ("photo", "best", "dog"), None),
        (PACS, ("photo", "dog", "best"), None),
        (PACS, ("dog",), None),
        (PACS, (), None),
        (HOME, ("Real_World", "000_Alarm_Clock"), ("Real World", "Alarm_Clock")),
        (HOME, ("RealWorld", "alarm clock"), ("Real World", "Alarm_Clock")),
        (HOME, ("art", "val", "64-Webcam"), ("Art", "Webcam")),
        (NET, ("clipart", "train"), ("clipart", "train")),
        (NET, ("train", "clipart", "t-shirt"), ("clipart", "t-shirt")),
        (NET, ("clipart", "train", "train"), ("clipart", "train")),
    ],
)
def test_domain_and_class_are_found_in_a_path(
    entry: Entry, path: tuple[str, ...], place: tuple[str, str] | None
) -> None:
    assert entry.locate(path) == place


def test_names_are_found_in_any_spelling() -> None:
    for name in ("pacs", "PACS", "office home", "OfficeHome", "terra", "TerraInc", "domainnet_20", "MiniDomainNet"):
        assert find(name)
    assert find("imagenet") is None
    with pytest.raises(ConfigError, match="no data set 'DomainNett' in the catalogue: did you mean DomainNet"):
        entry_of("DomainNett")
    assert not set(EMBEDDED) & {name.casefold() for name in CATALOG}


def folders(entry: Entry, classes: int, domains: int, pictures: int = 1) -> dict[tuple[str, ...], int]:
    return {(d, c): pictures for d in list(entry.domains)[:domains] for c in entry.classes[:classes]}


def test_the_nearest_entry_is_recognised() -> None:
    def name(held: dict[tuple[str, ...], int]) -> str | None:
        found = recognise(held)
        return found and found[0].name

    for entry in CATALOG.values():
        assert name(folders(entry, 999, 9)) == entry.name
        assert name(folders(entry, 999, 2)) == entry.name
    assert name(folders(PACS, 7, 1)) == "PACS"
    assert name(folders(PACS, 4, 4)) == "PACS"
    assert name(folders(PACS, 3, 4)) is None
    assert name(folders(PACS, 7, 4, 9) | {("photo", "zebra"): 20}) == "PACS"
    assert name(folders(PACS, 7, 4, 9) | {("photo", "zebra"): 50}) is None
    assert name({}) is None
    assert recognise(folders(PACS, 1, 1), NET) is None
    found = recognise(folders(NET, 345, 6), CATALOG["DomainNet-20"])
    assert found and len(found[1]) == 120
