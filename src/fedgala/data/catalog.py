"""The benchmarks, declared: domains, classes, how people spell them, what a complete copy holds, where to get one.

An entry is all that is known of a data set; nothing elsewhere names one. Counts are those that could be confirmed at
more than one source; what could not be is left out, and then nothing is called complete.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from fedgala.data.classes import DOMAINNET, DOMAINNET_20, DOMAINNET_126, OFFICE_HOME, words
from fedgala.errors import ConfigError
from fedgala.settings import near

EMBEDDED = ("shapes",)
HUB = "hf:"  # in front of what is read through Hugging Face's library
SPLITS = frozenset(words("train val valid validation dev test crossval trainval full"))


@dataclass(frozen=True)
class Inventory:
    """What a complete copy of one release holds."""

    name: str  # as in "complete: the current download"; empty where there is one release only
    totals: Mapping[str, int]  # by domain
    table: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by domain, in the order of the classes


@dataclass(frozen=True)
class Entry:
    """A data set as it is known; spellings are compared without case, blanks, `_`, `-` and leading numbers."""

    name: str
    domains: Mapping[str, str]  # by the name used here, other spellings
    classes: tuple[str, ...]
    layout: str
    home: tuple[str, ...]
    licence: str
    inventories: tuple[Inventory, ...] = ()
    protocol: str = "leave one domain out: train on all others, probe on it"
    aliases: str = ""  # of its own name
    spellings: Mapping[str, str] = field(default_factory=dict)  # of classes, by what is on disk
    notes: tuple[str, ...] = ()
    part_of: str | None = None
    lists: str | None = None  # folder of the text lists that choose its pictures from those of `part_of`
    hub: str | None = None  # a copy on huggingface.co with columns of images, domains and classes

    @property
    def remote(self) -> str | None:
        """What to name as data for the copy on huggingface.co."""
        part = f"{self.name.lower()}:" if self.part_of else ""
        return self.hub and f"{part}{HUB}{self.hub}"

    @cached_property
    def _domains(self) -> dict[str, str]:
        spelled = {key(name): name for name in self.domains}
        return spelled | {key(other): name for name, others in self.domains.items() for other in others.split()}

    @cached_property
    def _classes(self) -> dict[str, str]:
        return {key(name): name for name in self.classes} | {key(a): b for a, b in self.spellings.items()}

    def domain(self, name: str) -> str | None:
        """The domain that `name` spells."""
        return self._domains.get(key(name))

    def label(self, name: str) -> str | None:
        """The class that `name` spells, ``000_Alarm_Clock`` as well as ``alarm clock``."""
        return self._classes.get(key(name)) or self._classes.get(key(re.sub(r"^\d+[_ -]+", "", name)))

    def locate(self, path: tuple[str, ...]) -> tuple[str, str] | None:
        """Domain and class of the pictures in a folder; between and below the two, only splits may be."""
        for low in range(len(path) - 1, 0, -1):
            if label := self.label(path[low]):
                for high in range(low - 1, -1, -1):
                    if domain := self.domain(path[high]):
                        return domain, label
                    if path[high].casefold() not in SPLITS:
                        break
            if path[low].casefold() not in SPLITS:
                return None
        return None


@cache
def key(name: str) -> str:
    """What all spellings of a name have in common: ``Real World``, ``real_world``, ``RealWorld``."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", name).casefold())


def recognise(
    folders: Mapping[tuple[str, ...], int], only: Entry | None = None
) -> tuple[Entry, dict[tuple[str, ...], tuple[str, str]]] | None:
    """The entry that these folders of so many pictures belong to, and each folder's domain and class.

    An entry fits where nearly all pictures lie in one of its domains and classes, and most of its classes occur; of
    several that fit, it is the one that differs least in which classes it has where. With `only`, any picture will do.
    """
    best: tuple[float, Entry, dict[tuple[str, ...], tuple[str, str]]] | None = None
    total = sum(folders.values())
    for entry in [only] if only else CATALOG.values():
        placed = {path: pair for path in folders if (pair := entry.locate(path))}
        pairs = set(placed.values())
        held = sum(folders[path] for path in placed) / max(total, 1)
        fits = held >= 0.9 and 2 * len({label for _, label in pairs}) >= len(entry.classes)
        alike = len(pairs) / len(pairs | {(d, c) for d in entry.domains for c in entry.classes})
        if placed and (fits or only) and (best is None or alike > best[0]):
            best = alike, entry, placed
    return best and best[1:]


def find(name: str) -> Entry | None:
    """The entry of this name or alias, in any spelling."""
    return next(
        (entry for entry in CATALOG.values() if key(name) in map(key, (entry.name, *entry.aliases.split()))), None
    )


def entry_of(name: str) -> Entry:
    """The entry of this name.

    Raises:
        ConfigError: there is none.
    """
    if entry := find(name):
        return entry
    raise ConfigError(f"there is no data set '{name}' in the catalogue: {near(name, CATALOG)}")


def _table(**rows: str) -> Inventory:
    table = {domain: tuple(int(number) for number in row.split()) for domain, row in rows.items()}
    return Inventory("", {domain: sum(row) for domain, row in table.items()}, table)


_PACS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_TERRA = words("bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel")
_LOCATIONS = {f"location_{number}": f"L{number} loc{number} {number}" for number in (100, 38, 43, 46)}
_TERRA_HOME = (
    "https://lila.science/datasets/caltech-camera-traps",
    "https://storage.googleapis.com/public-datasets-lila, eccv_18_all_images_sm.tar.gz and eccv_18_annotations.tar.gz",
)
_TERRA_LICENCE = "Community Data License Agreement, permissive variant (LILA)"
_SIX = {"clipart": "", "infograph": "info", "painting": "paint", "quickdraw": "quick", "real": "", "sketch": ""}
_DOMAINNET_HOME = (
    "https://ai.bu.edu/M3SDA, one zip a domain: take the cleaned ones",
    "https://huggingface.co/datasets/wltjr1007/DomainNet",
)
_DOMAINNET_HUB = "wltjr1007/DomainNet"
_DOMAINNET_LICENCE = "its authors' fair use notice: research only, see https://ai.bu.edu/M3SDA"

CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "PACS",
            {"art_painting": "art artpaintings", "cartoon": "cartoons", "photo": "photos", "sketch": "sketches"},
            _PACS,
            "PACS/<domain>/<class>/*.jpg; kfold/, images/ or raw_images/ above the domains is as good",
            (
                "https://sketchx.eecs.qmul.ac.uk/downloads",
                "https://github.com/MachineLearning2020/Homework3-PACS",
                "https://huggingface.co/datasets/flwrlabs/pacs",
            ),
            "not stated by its authors: for research, at your own judgement",
            (
                _table(
                    art_painting="379 255 285 184 201 295 449",
                    cartoon="389 457 346 135 324 288 405",
                    photo="189 202 182 186 199 280 432",
                    sketch="772 740 753 608 816 80 160",
                ),
            ),
            notes=("the kfold lists count classes from 1 and their `test` is the whole domain: they are not needed",),
            hub="flwrlabs/pacs",
        ),
        Entry(
            "Office-Home",
            {"Art": "", "Clipart": "", "Product": "products", "Real World": "real"},
            OFFICE_HOME,
            "OfficeHomeDataset_10072016/<Art|Clipart|Product|Real World>/<Class>/*.jpg",
            (
                "https://www.hemanthdv.org/officeHomeDataset.html",
                "https://huggingface.co/datasets/flwrlabs/office-home",
            ),
            "its authors' fair use notice: research only",
            (Inventory("", {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}),),
            aliases="officehomedg",
            hub="flwrlabs/office-home",
        ),
        Entry(
            "TerraIncognita",
            _LOCATIONS,
            _TERRA,
            "terra_incognita/location_<n>/<class>/*.jpg, or eccv_18_all_images_sm/ beside eccv_18_annotation_files/",
            _TERRA_HOME,
            _TERRA_LICENCE,
            (
                Inventory(
                    "the release DomainBed first used",
                    {"location_100": 4879, "location_38": 9767, "location_43": 4020, "location_46": 6122},
                ),
                Inventory(
                    "the current download",
                    {"location_100": 4741, "location_38": 9736, "location_43": 3970, "location_46": 5883},
                ),
            ),
            aliases="terrainc terra",
            notes=("an image with animals of two classes counts for both, as in DomainBed",),
        ),
        Entry(
            "TerraIncognita-9",
            _LOCATIONS,
            tuple(name for name in _TERRA if name != "empty"),
            "as TerraIncognita; images without an animal are left out",
            _TERRA_HOME,
            _TERRA_LICENCE,
            aliases="terrainc9 terra9",
            part_of="TerraIncognita",
        ),
        Entry(
            "DomainNet",
            _SIX,
            DOMAINNET,
            "domain_net/<domain>/<class>/*.jpg; the zips may stay zips, all in one folder",
            _DOMAINNET_HOME,
            _DOMAINNET_LICENCE,
            (
                Inventory(
                    "cleaned",
                    dict(zip(_SIX, (48_129, 51_605, 72_266, 172_500, 172_947, 69_128), strict=True)),
                ),
                Inventory(
                    "raw, with its duplicates",
                    dict(zip(_SIX, (48_833, 53_201, 75_759, 172_500, 175_327, 70_386), strict=True)),
                ),
            ),
            hub=_DOMAINNET_HUB,
        ),
        Entry(
            "DomainNet-20",
            _SIX,
            DOMAINNET_20,
            "as DomainNet, whole or these 20 classes of it",
            _DOMAINNET_HOME,
            _DOMAINNET_LICENCE,
            protocol="train on painting, real and sketch; probe on clipart, infograph and quickdraw",
            part_of="DomainNet",
            hub=_DOMAINNET_HUB,
        ),
        Entry(
            "mini-DomainNet",
            {name: _SIX[name] for name in ("clipart", "painting", "real", "sketch")},
            DOMAINNET_126,
            "as DomainNet, with its text lists in splits_mini/ or beside the domains",
            _DOMAINNET_HOME,
            _DOMAINNET_LICENCE,
            (
                Inventory(
                    "the DomainNet-126 lists",
                    {"clipart": 18_522, "painting": 30_041, "real": 69_621, "sketch": 24_146},
                ),
            ),
            aliases="domainnet126",
            part_of="DomainNet",
            lists="splits_mini",
            hub=_DOMAINNET_HUB,
        ),
        Entry(
            "VLCS",
            {"Caltech101": "caltech", "LabelMe": "", "SUN09": "sun", "VOC2007": "voc pascal"},
            ("bird", "car", "chair", "dog", "person"),
            "VLCS/<domain>/<class>/*.jpg",
            ("DomainBed's scripts/download.py names a copy: https://github.com/facebookresearch/DomainBed",),
            "that of each of its four sources",
            spellings={"0": "bird", "1": "car", "2": "chair", "3": "dog", "4": "person"},
        ),
    )
}
