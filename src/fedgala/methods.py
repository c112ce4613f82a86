"""Named methods, as settings over a preset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedgala.presets import PRESETS


@dataclass(frozen=True)
class Method:
    """A method by its name: what it sets, and what it is."""

    settings: Mapping[str, Any]
    summary: str


METHODS: dict[str, Method] = {
    "fedgala": Method({}, "FedGaLA: local and global alignment"),
    "fedsimclr": Method(PRESETS["fedsimclr"], "FedAvg with SimCLR"),
}
