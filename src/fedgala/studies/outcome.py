"""What a study has found so far: its list of runs on disk, and what their records say. A missing run is missing.

A study's folder holds ``study.json``, which names its runs; the runs lie beside it in ``runs/``, shared by all studies
there. Records are enough: neither checkpoints nor encoders are needed to read a study.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from fedgala.errors import ConfigError
from fedgala.records import Record, Records
from fedgala.storage import write_text
from fedgala.studies.plan import Place, Planned

MANIFEST = "study.json"


@dataclass(frozen=True)
class Entry:
    """A run of a study, as its records tell it."""

    label: str
    at: Mapping[str, Any]
    target: str
    seed: int
    rounds: int
    folder: Path

    @cached_property
    def records(self) -> list[Record]:
        """All that was recorded."""
        return Records(self.folder / "records.jsonl").read()

    def of(self, kind: str) -> list[Record]:
        """The records of one kind."""
        return [record for record in self.records if record["kind"] == kind]

    @property
    def last(self) -> Record | None:
        """The evaluation after the last round; None for a run that is not finished."""
        return next((record for record in self.of("evaluation") if record["round"] == self.rounds), None)


@dataclass(frozen=True)
class Outcome:
    """A study with its runs."""

    study: str
    data: str
    targets: tuple[str, ...]
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    features: str = "encoder"

    @property
    def labels(self) -> tuple[str, ...]:
        """The variants, in the study's order."""
        return tuple(dict.fromkeys(entry.label for entry in self.entries))

    def find(self, label: str, target: str, seed: int) -> Entry | None:
        """The run of a variant."""
        wanted = (label, target, seed)
        return next((it for it in self.entries if (it.label, it.target, it.seed) == wanted), None)

    def final(self, label: str, target: str, seed: int, ratio: float) -> float | None:
        """Accuracy after the last round, per cent."""
        entry = self.find(label, target, seed)
        return accuracy(entry.last if entry else None, ratio, self.features)

    @property
    def finished(self) -> int:
        """How many runs are finished."""
        return len({entry.folder for entry in self.entries if entry.last})


def accuracy(evaluation: Record | None, ratio: float, features: str) -> float | None:
    """The mean over a probe's splits, per cent; None where nothing was measured."""
    values = (evaluation or {}).get("probe", {}).get(features, {}).get(f"{ratio:g}")
    return 100 * fmean(values) if values else None


def write_manifest(folder: Path, name: str, place: Place, planned: Sequence[Planned]) -> None:
    """Write down which runs a study is."""
    runs = [
        {
            "label": item.variant.label,
            "at": dict(item.variant.at),
            "target": item.target,
            "seed": item.seed,
            "rounds": item.config.federation.rounds,
            "run": item.config.folder.name,
        }
        for item in planned
    ]
    about = {"study": name, "data": asdict(place), "runs": runs}
    lines = json.dumps(about, ensure_ascii=False).replace('{"label"', '\n {"label"')  # a run a line, to be compared
    write_text(folder / MANIFEST, lines + "\n")


def read_study(folder: Path, features: str = "encoder") -> Outcome:
    """The study in a folder.

    Raises:
        ConfigError: there is none.
    """
    about = _about(folder)
    try:
        runs = folder.parent / "runs"
        entries = tuple(_entry(run, runs) for run in about["runs"])
        name, data = about["study"], about["data"]["name"]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / MANIFEST} is damaged: run the study again, which keeps its runs") from error
    return _outcome(name, data, entries, features)


def foreseen(name: str, place: Place, planned: Sequence[Planned]) -> Outcome:
    """A study as it is before its first run."""
    entries = tuple(
        Entry(it.variant.label, it.variant.at, it.target, it.seed, it.config.federation.rounds, it.config.folder)
        for it in planned
    )
    return _outcome(name, place.name, entries, "encoder")


def find_studies(out: Path, name: str) -> Iterator[Path]:
    """The folders of a study in `out`, one for each data set it was run on."""
    for path in sorted(out.glob(f"*/{MANIFEST}")):
        if _about(path.parent).get("study") == name:
            yield path.parent


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(about, dict):
            raise ValueError("not an object")
    except FileNotFoundError as error:
        raise ConfigError(f"{folder} holds no study: it has no {MANIFEST}; run it first") from error
    except ValueError as error:
        raise ConfigError(f"{folder / MANIFEST} is damaged: run the study again, which keeps its runs") from error
    return about


def _outcome(name: str, data: str, entries: tuple[Entry, ...], features: str) -> Outcome:
    targets, seeds = dict.fromkeys(it.target for it in entries), dict.fromkeys(it.seed for it in entries)
    return Outcome(name, data, tuple(targets), tuple(seeds), entries, features)


def _entry(run: Mapping[str, Any], runs: Path) -> Entry:
    return Entry(run["label"], run["at"], run["target"], run["seed"], run["rounds"], runs / run["run"])
