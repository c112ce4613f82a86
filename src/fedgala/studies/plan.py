"""From what the user asked for to the configuration of each run.

What a run is made of, later over earlier: the preset, the flags, the method's own recipe, and what the study varies. So
a flag changes the setting of all rows, but neither turns one method into another nor overrides what is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedgala.config import RunConfig, merge
from fedgala.data.catalog import EMBEDDED
from fedgala.data.resolve import resolve
from fedgala.errors import DataError
from fedgala.methods import METHODS

SHAPES = ("photo", "art_painting", "cartoon", "sketch")
PAPERS_ORDER = {  # in which the paper's columns are; a data set of others is in the order of their names
    "PACS": SHAPES,
    "shapes": SHAPES,
    "DomainNet-20": ("clipart", "infograph", "quickdraw"),
    "TerraIncognita": ("location_38", "location_43", "location_46", "location_100"),
    "TerraIncognita-9": ("location_38", "location_43", "location_46", "location_100"),
}
SOURCES = {"DomainNet-20": ("painting", "real", "sketch")}  # trained on whatever the target; else all but the target


@dataclass(frozen=True)
class Variant:
    """A row of a table, or a point of a figure: a method, with what the study changes about it."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, float | str] = field(default_factory=dict)  # where on a figure


@dataclass(frozen=True)
class Place:
    """The data of a study: where, by what name the paper's tables know it, and its domains."""

    path: str
    name: str
    domains: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The domains that are held out in turn, in the paper's order."""
        return PAPERS_ORDER.get(self.name, self.domains)


@dataclass(frozen=True)
class Ask:
    """What the user asked for, settings as nested plain data."""

    place: Place
    preset: Mapping[str, Any]
    flags: Mapping[str, Any]
    seeds: Sequence[int]
    targets: tuple[str, ...] = ()  # those of the study if empty
    out: str = "studies"

    @property
    def base(self) -> RunConfig:
        """What the study's variants are variants of."""
        return RunConfig.from_dict(merge(self.preset, self.flags))


@dataclass(frozen=True)
class Planned:
    """A run of a study and what it stands for."""

    variant: Variant
    target: str
    seed: int
    config: RunConfig


def locate(path: str) -> Place:
    """Name and domains of the data at `path`, before any picture is opened.

    Raises:
        DataError: there is nothing there, or only one domain.
    """
    if path in EMBEDDED:
        return Place(path, path, SHAPES)
    listing = resolve(path)
    if len(listing.domains) < 2:
        raise DataError(f"{path} has one domain, and a study holds one out: name a folder of several")
    return Place(path, listing.known or listing.name, listing.domains)


def configure(ask: Ask, variant: Variant, target: str, seed: int) -> RunConfig:
    """The run of a variant."""
    own: dict[str, Any] = {"out": f"{ask.out}/runs", "seed": seed, "data": {"path": ask.place.path, "target": target}}
    if sources := SOURCES.get(ask.place.name):
        own["data"]["sources"] = [source for source in sources if source != target]
    nested: Mapping[str, Any] = ask.preset
    for layer in (ask.flags, METHODS[variant.method].settings, variant.settings, own):
        nested = merge(nested, layer)
    return RunConfig.from_dict(nested)


def overruled(ask: Ask, planned: Sequence[Planned]) -> dict[str, set[str]]:
    """Settings that were given as flags, with the variants that have their own."""
    wanted = _flat(ask.flags)
    found: dict[str, set[str]] = {}
    for item in planned:
        have = _flat(item.config.to_dict())
        base = _flat(ask.base.to_dict())
        for name in wanted:
            if have.get(name) != base.get(name) and name not in ("data.target", "seed", "out"):
                found.setdefault(name, set()).add(item.variant.label)
    return found


def _flat(nested: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in nested.items():
        out |= _flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
    return out
